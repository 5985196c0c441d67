// What a decoder is made of, and what it is asked. The first structures are filled by the Python
// side (weights.py, executor.py), which mirrors their order.

#pragma once

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "attention.h"
#include "encode.h"
#include "matrix.h"
#include "threads.h"

namespace pageturn {

struct Layer {
    const float* attention_norm;  // [hidden]
    Matrix qkv;
    const float *q_norm, *k_norm;  // [head_dim] or null
    Matrix output;
    const float* mlp_norm;  // [hidden]
    Matrix gate_up;         // blocks of gate and up by turns
    Matrix down;
};

struct Model {
    int32_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocabulary;
    int32_t window;  // keys that a row sees; 0: all
    float eps;
    const float* inverse_frequencies;  // [head_dim / 2]
    const float* norm;                 // [hidden]
    Matrix embedding, head;
    const Layer* layer;
};

struct Step {
    int32_t rows, sequences, logit_rows;
    const int32_t *tokens, *positions, *slots;  // [rows]
    const int32_t* starts;                      // [sequences + 1]
    const int32_t *contexts, *table_rows;       // [sequences]
    const int32_t* tables;                      // [..., table_entries]
    int64_t table_entries;
    const int32_t* logit_row;
    float* logits;  // [logit_rows, vocabulary]

    Span span(int n) const {
        return {starts[n], starts[n + 1], contexts[n], tables + table_rows[n] * table_entries};
    }
};

constexpr int ALONE = 2;  // rows that every thread prepares for itself

// Memory that grows and is never given back while the decoder lives.
template <class T> class Buffer {
  public:
    Buffer() = default;
    Buffer(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }
    void get(size_t count) {
        if (count <= size_) return;
        std::free(data_);
        size_ = 0;
        data_ = static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 127) / 64 * 64));
        if (!data_) throw std::bad_alloc();
        size_ = count;
    }
    T* data() const { return data_; }
    size_t bytes() const { return size_ * sizeof(T); }

  private:
    T* data_ = nullptr;
    size_t size_ = 0;
};

// Rows of a product's left side in both forms; `words` only for a few rows.
struct Input {
    Words words;
    bf16* narrow;
};

class InputBuffer {
  public:
    void reserve(size_t rows, int columns) {
        const size_t few = std::min(rows, size_t(FEW));
        narrow_.get(rows * columns);
        words_.get(few * columns);
        scales_.get(few * columns / GROUP);
        sums_.get(few * columns / GROUP);
    }
    size_t bytes() const {
        return narrow_.bytes() + words_.bytes() + scales_.bytes() + sums_.bytes();
    }
    Input get() const {
        return {{words_.data(), scales_.data(), sums_.data()}, narrow_.data()};
    }

  private:
    Buffer<bf16> narrow_;
    Buffer<int16_t> words_;
    Buffer<float> scales_, sums_;
};

// One block of query rows over some of the keys of one KV head.
struct Task {
    int32_t span, kv_head, first, count;  // query rows: row * group + head in the group
    int32_t start, stop;                  // keys
    int32_t part;                         // where its partial result goes; -1: it is the whole
};

struct Split {
    int32_t first, count;  // parts; none where the keys were not split
};

// A step's attention in pieces. A span with few rows is cut along the keys, so that the threads
// share one long context; the cuts lie on multiples of 256 whoever else is in the batch.
struct AttentionPlan {
    std::vector<Task> tasks;
    std::vector<Split> splits;  // [sequences, kv_heads]
    std::vector<int> span_of;   // [rows]
    int parts = 0;

    void plan(const Step& step, const Model& model, int group) {
        tasks.clear();
        splits.assign(size_t(step.sequences) * model.kv_heads, {0, 0});
        span_of.resize(step.rows);
        parts = 0;
        for (int n = 0; n < step.sequences; n++) {
            const Span span = step.span(n);
            const int queries = (span.stop - span.start) * group;
            std::fill(span_of.begin() + span.start, span_of.begin() + span.stop, n);
            for (int head = 0; head < model.kv_heads; head++)
                // The latest rows see most keys: they go first.
                for (int first = (queries - 1) / QUERIES * QUERIES; first >= 0; first -= QUERIES) {
                    Task task{n, head, first, std::min(QUERIES, queries - first), 0, 0, -1};
                    int64_t from = INT64_MAX;
                    for (int q = first; q < first + task.count; q++) {
                        const int32_t position = step.positions[span.start + q / group];
                        from = std::min<int64_t>(from, position);
                        task.stop = std::max(task.stop, position + 1);
                    }
                    if (model.window)
                        task.start = std::max<int64_t>(0, from - model.window + 1) / KEYS * KEYS;
                    if (queries <= QUERIES && task.stop - task.start > SPLIT)
                        cut(task, splits[n * model.kv_heads + head]);
                    else
                        tasks.push_back(task);
                }
        }
    }

  private:
    void cut(Task task, Split& split) {
        split.first = parts;
        for (const int stop = task.stop; task.start < stop; task.start = task.stop) {
            task.stop = std::min(stop, (task.start / SPLIT + 1) * SPLIT);
            task.part = parts++;
            tasks.push_back(task);
        }
        split.count = parts - split.first;
    }
};

class Decoder {
  public:
    Decoder(const Model& model, int threads);
    void forward(const Pool& pool, const Step& step);
    // Rows of the embedding: out [count, hidden].
    void embed(const int32_t* tokens, int count, float* out);
    // One layer on rows x [rows, hidden], in place, with layer 0 of a pool.
    void run_layer(int layer, float* x, const Pool& pool, const Step& step);
    // Allocate what a step of so many rows needs; returns the bytes of all buffers.
    size_t workspace(int rows);
    // Pages in full precision, coded: out [layers, count, slot_bytes].
    void encode(const Pool& pool, int layers, const int64_t* pages, int count, uint8_t* out);

  private:
    // What a thread has for itself.
    struct Own {
        int number;
        InputBuffer input;
        Buffer<float> line;
        Buffer<uint8_t> panel;
        InputBuffer queries;  // rotated ones, and those of a few rows as words
        Buffer<float> turned;  // sums of rotated values, and a row to rotate in
        Buffer<bf16> space;  // a decoded block of keys and values
    };

    void begin(const Pool& pool, const Step& step);
    void reserve(size_t rows, size_t logit_rows);
    void reserve_for_codes();
    template <class Job> void run(const Job& job);
    void pass(Own& own);
    void block(Own& own, const Layer& layer, int l, float* x);
    void turn(int row);
    void norm(const float* x, const float* weight, int size, float* out) const;
    template <class Row> Input prepare(Own& own, int rows, int columns, const Row& make);
    template <class Done>
    void multiply(Own& own, const Matrix& w, const Input& x, int rows, const Done& done);
    template <int KIND, class Finish>
    void multiply_few(Own& own, const Matrix& w, const Words& x, int rows, const Finish& finish);
    void warm(const Own& own, const Matrix& w) const;
    template <class Finish>
    void multiply_many(Own& own, const Matrix& w, const bf16* x, int rows, const Finish& finish);
    void place(int l, const Layer& layer, int row);
    Sequence sequence(int l, const Task& task) const;
    void attend_task(Own& own, int l, size_t index);
    Queries task_queries(Own& own, const Task& task, bool coded) const;
    const float* query(const Task& task, int q) const;
    void mixed_row(int row, float* out);
    void logits(Own& own);

    bf16* queries(int row, int kv_head) const {
        return q_.data() + (size_t(kv_head) * s_.rows + row) * group_ * m_.head_dim;
    }
    // A query row's partial result: [head_dim] weighted values, the maximum, the sum.
    size_t part_values() const { return size_t(QUERIES) * (m_.head_dim + 2); }
    float* part(int part, int q) const {
        return parts_.data() + part * part_values() + size_t(q) * (m_.head_dim + 2);
    }

    const Model m_;
    Team team_;
    std::vector<Own> own_;
    AttentionPlan plan_;
    Pool p_{};
    Step s_{};
    int group_, q_values_, widest_;
    float scale_;
    Buffer<float> x_, qkv_, mixed_, gated_, angles_, parts_;
    Buffer<bf16> q_;
    InputBuffer common_;
};

}  // namespace pageturn
