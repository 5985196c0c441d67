// Where keys and values lie: in pages of a pool, of which a sequence has a table.
//
// One head's part of a page in full precision, for d = head_dim and p = page_size (a multiple of
// 16), in bfloat16:
//
//   keys    [d / 2][p][2]   sixteen keys side by side, so a query's dot products need no lane sums
//   values  [p / 2][d][2]   two keys' values in a lane, so a weight pair multiplies both
//
// Everything here is looked up by runs of sixteen positions, which never cross a page.

#pragma once

#include "simd.h"

namespace pageturn {

constexpr int KEYS = 64;            // keys in a block
constexpr int RUNS = KEYS / LANES;  // runs in a block

// The buffer [layers][layer_slots][slot_bytes]. Pages of numbers below `frames` are in full
// precision and take `slots_per_frame` slots; the others are coded ones and take the slot of their
// number less `frames`.
struct Pool {
    uint8_t* base;
    int64_t layer_slots, slot_bytes, frames;
    int64_t values_at;  // bytes before a frame's values
    int32_t slots_per_frame, page_size;

    uint8_t* frame(int layer, int64_t page) const {
        return base + (layer * layer_slots + page * slots_per_frame) * slot_bytes;
    }
    bf16* keys(int layer, int64_t page, int head, int head_dim) const {
        return (bf16*)frame(layer, page) + size_t(head) * page_size * head_dim;
    }
    bf16* values(int layer, int64_t page, int head, int head_dim) const {
        return (bf16*)(frame(layer, page) + values_at) + size_t(head) * page_size * head_dim;
    }
};

struct Span {
    int64_t start, stop, context;  // rows; keys once this step's are written
    const int64_t* table;          // [pages]
};

// Sixteen positions of one head.
struct Run {
    const bf16 *keys, *values;
    size_t key_step;  // numbers from one pair of dimensions to the next
};

// The positions first .. first + count - 1, at most 64.
struct Block {
    int first, count;
    Run run[RUNS];  // those beyond `count` repeat the last

    int runs() const { return (count + LANES - 1) / LANES; }
};

// One KV head of a sequence in one layer.
struct Sequence {
    const Pool& pool;
    int layer, head, head_dim;
    const int64_t* table;

    Run run(int position) const {
        const int64_t page = table[position / pool.page_size];
        const int offset = position % pool.page_size;
        return {pool.keys(layer, page, head, head_dim) + 2 * offset,
                pool.values(layer, page, head, head_dim) + size_t(offset) * head_dim,
                2 * size_t(pool.page_size)};
    }

    Block block(int first, int stop) const {
        Block block{first, stop - first < KEYS ? stop - first : KEYS, {}};
        for (int n = 0; n < RUNS; n++)
            block.run[n] = n < block.runs() ? run(first + n * LANES) : block.run[n - 1];
        return block;
    }

    // Send for the block from `first` on, up to `stop`.
    void fetch_block(int first, int stop) const {
        for (int at = first; at < first + KEYS && at < stop; at += LANES) {
            const Run r = run(at);
            for (int i = 0; i < head_dim / 2; i++) fetch(r.keys + i * r.key_step);
            for (int i = 0; i < LANES * head_dim; i += 32) fetch(r.values + i);
        }
    }
};

}  // namespace pageturn
