// A decoder's forward pass over a ragged batch, in one call.
//
// The residual stream, norms, softmax and all sums are float32; what a matrix is multiplied with is
// bfloat16, or for a few rows 16-bit integers (see matrix.h); keys and values are bfloat16.

#include "decoder.h"

#include <cmath>

namespace pageturn {

Decoder::Decoder(const Model& model, int threads) : m_(model), team_(threads), own_(threads) {
    for (int i = 0; i < threads; i++) own_[i].number = i;
    group_ = m_.heads / m_.kv_heads;
    q_values_ = m_.heads * m_.head_dim;
    scale_ = 1.44269504f / std::sqrt(float(m_.head_dim));  // softmax in powers of two
    widest_ = std::max({m_.hidden, m_.intermediate, q_values_});
}

void Decoder::forward(const Pool& pool, const Step& step) {
    begin(pool, step);
    run([&](Own& own) { pass(own); });
}

void Decoder::embed(const int32_t* tokens, int count, float* out) {
    run([&](Own&) {
        team_.share(count, [&](int row) {
            decode_row(m_.embedding, tokens[row], out + size_t(row) * m_.hidden);
        });
    });
}

void Decoder::run_layer(int layer, float* x, const Pool& pool, const Step& step) {
    begin(pool, step);
    run([&](Own& own) {
        team_.share(s_.rows, [&](int row) { turn(row); });
        block(own, m_.layer[layer], 0, x);
    });
}

void Decoder::encode(const Pool& pool, int layers, const int64_t* pages, int count, uint8_t* out) {
    reserve_for_codes();
    run([&](Own& own) {
        team_.share(layers * count * m_.kv_heads, [&](int i) {
            const int at = i / m_.kv_heads;
            encode_page(pool, at / count, int(pages[at % count]), i % m_.kv_heads, m_.head_dim,
                        (F*)own.space.data(), out + size_t(at) * pool.slot_bytes);
        });
    });
}

template <class Job> void Decoder::run(const Job& job) {
    std::atomic<int> number{0};
    team_.run([&] { job(own_[number.fetch_add(1)]); });
}

void Decoder::begin(const Pool& pool, const Step& step) {
    p_ = pool;
    s_ = step;
    plan_.plan(s_, m_, group_);
    reserve(s_.rows, s_.logit_rows);
    parts_.get(plan_.parts * part_values());
    if (p_.kind[OF_KEYS]) reserve_for_codes();
}

// All memory of a step, before the threads begin: nothing in a pass can fail.
void Decoder::reserve(size_t rows, size_t logit_rows) {
    const size_t inputs = std::max(rows, logit_rows);
    x_.get(rows * m_.hidden);
    qkv_.get(rows * m_.layer[0].qkv.rows);
    q_.get(rows * q_values_);
    mixed_.get(rows * q_values_);
    gated_.get(rows * m_.intermediate);
    angles_.get(rows * m_.head_dim);
    common_.reserve(inputs, widest_);
    for (Own& own : own_) {
        own.line.get(std::max(size_t(widest_), size_t(QUERIES) * m_.head_dim));
        own.panel.get(size_t(widest_) * PANEL * sizeof(bf16));
        own.input.reserve(ALONE, widest_);
    }
}

size_t Decoder::workspace(int rows) {
    reserve(rows, 1);
    size_t bytes = common_.bytes() + q_.bytes();
    for (const auto* buffer : {&x_, &qkv_, &mixed_, &gated_, &angles_, &parts_})
        bytes += buffer->bytes();
    for (const Own& own : own_)
        bytes += own.line.bytes() + own.panel.bytes() + own.input.bytes() + own.queries.bytes() +
                 own.turned.bytes() + own.space.bytes();
    return bytes;
}

void Decoder::reserve_for_codes() {
    for (Own& own : own_) {
        own.queries.reserve(QUERIES, m_.head_dim);
        own.turned.get(size_t(QUERIES + 1) * m_.head_dim);
        own.space.get(size_t(2 * KEYS) * m_.head_dim);
    }
}

void Decoder::pass(Own& own) {
    float* x = x_.data();
    team_.share(s_.rows, [&](int row) {
        decode_row(m_.embedding, s_.tokens[row], x + size_t(row) * m_.hidden);
        turn(row);
    });
    for (int l = 0; l < m_.layers; l++) block(own, m_.layer[l], l, x);
    logits(own);
}

// A layer on rows x, with layer l of the pool.
void Decoder::block(Own& own, const Layer& layer, int l, float* x) {
    const int rows = s_.rows, hidden = m_.hidden;
    const auto add = [&](int row, int column, F a, F b) {
        float* out = x + size_t(row) * hidden + column;
        store(out, load(out) + a);
        store(out + LANES, load(out + LANES) + b);
    };
    const auto normed = [&](const float* weight, const Matrix& next) {
        warm(own, next);
        return prepare(own, rows, hidden, [=, this](int row, float* out) {
            norm(x + size_t(row) * hidden, weight, hidden, out);
        });
    };
    multiply(own, layer.qkv, normed(layer.attention_norm, layer.qkv), rows,
             [&](int row, int column, F a, F b) {
                 float* out = qkv_.data() + size_t(row) * layer.qkv.rows + column;
                 store(out, a);
                 store(out + LANES, b);
             });
    team_.share(rows, [&](int row) { place(l, layer, row); });
    team_.share(int(plan_.tasks.size()), [&](int i) { attend_task(own, l, i); });
    warm(own, layer.output);
    const Input mixed = prepare(own, rows, q_values_, [&](int row, float* out) {
        mixed_row(row, out);
    });
    multiply(own, layer.output, mixed, rows, add);
    multiply(own, layer.gate_up, normed(layer.mlp_norm, layer.gate_up), rows,
             [&](int row, int column, F gate, F up) {
                 store(gated_.data() + size_t(row) * m_.intermediate + column / 2, silu(gate) * up);
             });
    warm(own, layer.down);
    const Input gated = prepare(own, rows, m_.intermediate, [&](int row, float* out) {
        std::memcpy(out, gated_.data() + size_t(row) * m_.intermediate,
                    sizeof(float) * m_.intermediate);
    });
    multiply(own, layer.down, gated, rows, add);
}

// Cosines and sines of a row's position.
void Decoder::turn(int row) {
    float* angles = angles_.data() + size_t(row) * m_.head_dim;
    for (int i = 0; i < m_.head_dim / 2; i++) {
        const float angle = float(s_.positions[row]) * m_.inverse_frequencies[i];
        angles[i] = std::cos(angle);
        angles[m_.head_dim / 2 + i] = std::sin(angle);
    }
}

void Decoder::norm(const float* x, const float* weight, int size, float* out) const {
    F squares = zero();
    for (int i = 0; i < size; i += LANES) squares = fma(load(x + i), load(x + i), squares);
    const F factor = splat(1.0f / std::sqrt(sum(squares) / float(size) + m_.eps));
    for (int i = 0; i < size; i += LANES) store(out + i, load(x + i) * factor * load(weight + i));
}

// Rows as a product wants them. With one or two rows every thread makes them for itself, which is
// quicker than waiting for the one that does.
template <class Row>
Input Decoder::prepare(Own& own, int rows, int columns, const Row& make) {
    const bool alone = rows <= ALONE, few = rows <= FEW;
    const Input input = (alone ? own.input : common_).get();
    const auto one = [&](int row) {
        float* line = own.line.data();
        make(row, line);
        if (few) input.words.set(row, line, columns);
        bf16* narrow = input.narrow + size_t(row) * columns;
        for (int i = 0; i < columns; i += LANES) store_narrow(narrow + i, load(line + i));
    };
    if (alone)
        for (int row = 0; row < rows; row++) one(row);
    else
        team_.share(rows, one);
    return input;
}

// y = x w^T; done(row, column, a, b) takes 32 outputs from `column` on.
template <class Done>
void Decoder::multiply(Own& own, const Matrix& w, const Input& x, int rows, const Done& done) {
    const auto finish = [&](int row, int panel, F a, F b) {
        const float* bias = w.bias ? w.bias + panel * PANEL : nullptr;
        done(row, panel * PANEL, bias ? a + load(bias) : a, bias ? b + load(bias + LANES) : b);
    };
    if (rows <= FEW && w.kind == INT4) multiply_few<INT4>(own, w, x.words, rows, finish);
    else if (rows <= FEW && w.kind == INT8) multiply_few<INT8>(own, w, x.words, rows, finish);
    else multiply_many(own, w, x.narrow, rows, finish);
}

template <int KIND, class Finish>
void Decoder::multiply_few(Own& own, const Matrix& w, const Words& x, int rows,
                           const Finish& finish) {
    team_.share_runs(own.number, w.panels(), [&](int panel) {
        for (int first = 0; first < rows; first += TOGETHER) {
            const int m = std::min(TOGETHER, rows - first);
            F left[TOGETHER], right[TOGETHER];
            few<KIND>(w, w.block(2 * panel), x, first, m, left);
            few<KIND>(w, w.block(2 * panel + 1), x, first, m, right);
            for (int i = 0; i < m; i++) finish(first + i, panel, left[i], right[i]);
        }
    });
}

// Send for the first of a matrix that this thread is about to read.
void Decoder::warm(const Own& own, const Matrix& w) const {
    const uint8_t* first = w.block(2 * team_.run_start(own.number, w.panels()));
    for (int line = 0; line < AHEAD; line += 64) fetch(first + line);
}

template <class Finish>
void Decoder::multiply_many(Own& own, const Matrix& w, const bf16* x, int rows,
                            const Finish& finish) {
    // A piece is a panel and, where there are too few panels to go round, a part of the rows.
    const int panels = w.panels(), wanted = (4 * team_.size() + panels - 1) / panels;
    int part = std::max((rows + wanted - 1) / wanted, 8 * TILE);
    part = (part + TILE - 1) / TILE * TILE;
    const int parts = (rows + part - 1) / part;
    team_.share(panels * parts, [&](int piece) {
        const int panel = piece / parts, from = piece % parts * part;
        const int to = std::min(rows, from + part);
        const uint8_t *left = w.block(2 * panel), *right = w.block(2 * panel + 1);
        int stride = 64;
        if (w.kind != BFLOAT16) {
            uint8_t* out = own.panel.data();
            const auto decode = w.kind == INT4 ? decode_block<INT4> : decode_block<INT8>;
            decode(left, w.columns / GROUP, out, 128);
            decode(right, w.columns / GROUP, out + 64, 128);
            left = out, right = out + 64, stride = 128;
        }
        F sums[TILE][2];
        for (int row = from; row < to; row += TILE) {
            const int m = std::min(TILE, to - row);
            many(x + size_t(row) * w.columns, m, w.columns, left, right, stride, sums);
            for (int i = 0; i < m; i++) finish(row + i, panel, sums[i][0], sums[i][1]);
        }
    });
}

// Rotate a row's queries and keys; keep the queries, put keys and values into their page.
void Decoder::place(int l, const Layer& layer, int row) {
    const int d = m_.head_dim, half = d / 2, size = p_.page_size;
    const float *cosine = angles_.data() + size_t(row) * d, *sine = cosine + half;
    float* line = qkv_.data() + size_t(row) * layer.qkv.rows;
    const int page = s_.slots[row] / size, offset = s_.slots[row] % size;
    for (int head = 0; head < m_.heads + m_.kv_heads; head++, line += d) {
        const bool query = head < m_.heads;
        const float* weight = query ? layer.q_norm : layer.k_norm;
        if (weight) norm(line, weight, d, line);
        for (int i = 0; i < half; i++) {
            const float low = line[i], high = line[i + half];
            line[i] = low * cosine[i] - high * sine[i];
            line[i + half] = high * cosine[i] + low * sine[i];
        }
        if (query) {
            bf16* out = queries(row, head / group_) + head % group_ * d;
            for (int i = 0; i < d; i += LANES) store_narrow(out + i, load(line + i));
        } else {
            bf16* out = p_.keys(l, page, head - m_.heads, d) + 2 * offset;
            for (int i = 0; i < d; i += LANES) {
                bf16 key[LANES];
                store_narrow(key, load(line + i));
                for (int j = 0; j < LANES; j += 2, out += 2 * size) std::memcpy(out, key + j, 4);
            }
        }
    }
    for (int head = 0; head < m_.kv_heads; head++, line += d) {
        bf16* out = p_.values(l, page, head, d);
        out += size_t(offset / 2) * 2 * d + offset % 2;
        for (int i = 0; i < d; i += LANES) {
            bf16 value[LANES];
            store_narrow(value, load(line + i));
            for (int j = 0; j < LANES; j++) out[2 * (i + j)] = value[j];
        }
    }
}

void Decoder::logits(Own& own) {
    const int rows = s_.logit_rows, hidden = m_.hidden;
    if (!rows) return;
    warm(own, m_.head);
    const Input last = prepare(own, rows, hidden, [&](int i, float* out) {
        norm(x_.data() + size_t(s_.logit_row[i]) * hidden, m_.norm, hidden, out);
    });
    multiply(own, m_.head, last, rows, [&](int row, int column, F a, F b) {
        float* out = s_.logits + size_t(row) * m_.vocabulary + column;
        const int room = m_.vocabulary - column;  // the head is padded to a multiple of 32
        if (room >= PANEL) {
            store(out, a);
            store(out + LANES, b);
        } else if (room > 0) {
            float both[PANEL];
            store(both, a);
            store(both + LANES, b);
            std::memcpy(out, both, sizeof(float) * room);
        }
    });
}

}  // namespace pageturn
