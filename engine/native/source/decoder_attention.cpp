// A step's attention, one task of its plan at a time.

#include "decoder.h"

#include <cmath>
#include <cstring>

namespace pageturn {

Sequence Decoder::sequence(int l, const Task& task) const {
    return {p_, l, task.kv_head, m_.head_dim, s_.span(task.span).table};
}

void Decoder::attend_task(Own& own, int l, size_t index) {
    const Task& task = plan_.tasks[index];
    const size_t following = index + team_.size();
    if (following < plan_.tasks.size() && plan_.tasks[following].count <= FEW) {
        const Task& next = plan_.tasks[following];
        const Sequence there = sequence(l, next);
        there.fetch_block(there.block(next.start, next.stop));
    }
    const Span span = s_.span(task.span);
    const int d = m_.head_dim;
    const Sequence sequence = this->sequence(l, task);
    const bool coded = p_.kind[OF_KEYS] && sequence.has_codes(task.start, task.stop);
    Running run;
    run.mixed = own.line.data();
    run.turned = coded && rotates(p_.kind[OF_VALUES]) ? own.turned.data() : nullptr;
    for (int q = 0; q < task.count; q++)
        run.position[q] = s_.positions[span.start + (task.first + q) / group_];
    attend(sequence, task_queries(own, task, coded), task.count, task.start, task.stop, m_.window,
           scale_, own.space.data(), run);
    for (int q = 0; q < task.count; q++) {
        if (run.turned) {
            float *to = run.mixed + size_t(q) * d, *back = own.turned.data() + QUERIES * d;
            times(run.turned + size_t(q) * d, p_.inverse, d, back);
            for (int i = 0; i < d; i += LANES) store(to + i, load(to + i) + load(back + i));
        }
        const int row = span.start + (task.first + q) / group_;
        const int head = task.kv_head * group_ + (task.first + q) % group_;
        const float* mixed = run.mixed + size_t(q) * d;
        const float total = sum(load(run.total[q]));
        if (task.part < 0) {
            float* out = mixed_.data() + size_t(row) * q_values_ + size_t(head) * d;
            for (int i = 0; i < d; i += LANES) store(out + i, load(mixed + i) * splat(1 / total));
        } else {
            float* out = part(task.part, q);
            std::memcpy(out, mixed, sizeof(float) * d);
            out[d] = run.most[q];
            out[d + 1] = total;
        }
    }
}

// A query after rotation by its position, in float32.
const float* Decoder::query(const Task& task, int q) const {
    const size_t row = s_.starts[task.span] + (task.first + q) / group_;
    const int head = task.kv_head * group_ + (task.first + q) % group_;
    return qkv_.data() + row * m_.layer[0].qkv.rows + size_t(head) * m_.head_dim;
}

Queries Decoder::task_queries(Own& own, const Task& task, bool coded) const {
    const int d = m_.head_dim;
    Queries q{};
    q.plain = queries(s_.starts[task.span], task.kv_head) + size_t(task.first) * d;
    if (!coded) return q;
    const Input input = own.queries.get();
    const bool rotated = rotates(p_.kind[OF_KEYS]);
    q.few = task.count <= FEW && p_.kind[OF_KEYS] != FP8;
    q.turned = rotated ? input.narrow : q.plain;
    q.words = input.words;
    if (!q.few && !rotated) return q;
    for (int i = 0; i < task.count; i++) {
        const float* row = query(task, i);
        if (rotated) {
            float* turned = own.turned.data() + QUERIES * d;
            times(row, p_.hadamard, d, turned);
            row = turned;
        }
        if (q.few && rotated) set_query<INT4>(q.words, i, row, d);
        else if (q.few) set_query<INT8>(q.words, i, row, d);
        else
            for (int j = 0; j < d; j += LANES)
                store_narrow(input.narrow + i * d + j, load(row + j));
    }
    return q;
}

// A row's attention: as it is, or put together from parts where the keys were split.
void Decoder::mixed_row(int row, float* out) {
    const int d = m_.head_dim, span = plan_.span_of[row];
    std::memcpy(out, mixed_.data() + size_t(row) * q_values_, sizeof(float) * q_values_);
    for (int head = 0; head < m_.heads; head++) {
        const Split split = plan_.splits[size_t(span) * m_.kv_heads + head / group_];
        if (!split.count) continue;
        const int q = (row - s_.starts[span]) * group_ + head % group_;
        float most = LOWEST, total = 0;
        for (int i = 0; i < split.count; i++) most = std::max(most, part(split.first + i, q)[d]);
        float* mixed = out + head * d;
        std::memset(mixed, 0, sizeof(float) * d);
        for (int n = 0; n < split.count; n++) {
            const float* from = part(split.first + n, q);
            const float weight = std::exp2((from[d] - most) * scale_);
            total += weight * from[d + 1];
            for (int i = 0; i < d; i++) mixed[i] += weight * from[i];
        }
        for (int i = 0; i < d; i++) mixed[i] /= total;
    }
}

}  // namespace pageturn
