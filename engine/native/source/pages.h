// Where keys and values lie: in pages of a pool, of which a sequence has a table.
//
// For d = head_dim and p = page_size (a multiple of 16), one head's part of a page is
//
//   in bfloat16   keys [d / 2][p][2]                         values [p / 2][d][2]
//   in 8 bits     keys [p / 16][d / 32][8 x 64 bytes]        values [p / 16][d / 16][4 x 64 bytes]
//   in 4 bits     keys [p / 16][d / 32][4 x 64 bytes]        values [p / 16][d / 16][2 x 64 bytes]
//   scales        of either [p / 16][d / 32][16]: of a key or value and 32 dimensions; of 8-bit
//                 floats one number
//
// Lanes are keys, so that a query's dot products need no sums across lanes; of values they are
// dimensions, and a lane's numbers belong to keys that follow each other. Their order in a lane is
// that of weights (matrix.h). Everything is looked up by runs of sixteen positions, which never
// cross a page.

#pragma once

#include "matrix.h"

namespace pageturn {

constexpr int KEYS = 64;            // keys in a block
constexpr int RUNS = KEYS / LANES;  // runs in a block

// The buffer [layers][layer_slots][slot_bytes]. Pages of numbers below `frames` are in bfloat16 and
// take `slots_per_frame` slots; the others are coded and take the slot of their number less
// `frames`.
struct Pool {
    uint8_t* base;
    int64_t layer_slots, slot_bytes, frames;
    int64_t values_at;          // bytes before a frame's values
    int64_t code_at[2], scale_at[2];  // bytes before a coded page's keys and values
    const float *hadamard, *inverse;  // [d, d]: what 4-bit rows are multiplied with, and back
    int32_t slots_per_frame, page_size;
    int32_t kind[2];            // of coded keys and values

    bool coded(int64_t page) const { return page >= frames; }
    uint8_t* slot(int layer, int64_t slot) const {
        return base + (layer * layer_slots + slot) * slot_bytes;
    }
    bf16* keys(int layer, int64_t page, int head, int head_dim) const {
        return (bf16*)slot(layer, page * slots_per_frame) + size_t(head) * page_size * head_dim;
    }
    bf16* values(int layer, int64_t page, int head, int head_dim) const {
        return (bf16*)((uint8_t*)keys(layer, page, head, head_dim) + values_at);
    }
};

// 4-bit rows are stored times a Hadamard matrix.
constexpr bool rotates(int kind) { return kind == INT4; }

// The rows of one sequence in a step.
struct Span {
    int32_t start, stop, context;  // rows; keys once this step's are written
    const int32_t* table;          // [pages]
};

// What a run is read from; DECODED: from bfloat16 that was made of codes.
enum class Form { PLAIN, CODES, DECODED };

// Sixteen positions of one head.
struct Run {
    Form form;
    const bf16 *keys, *values;
    size_t key_step;  // numbers from one pair of dimensions to the next
    const uint8_t* codes[2];
    const void* scales[2];

    const fp16* group_scales(int side, int group) const {
        return (const fp16*)scales[side] + group * LANES;
    }
};

enum Side { OF_KEYS = 0, OF_VALUES = 1 };

// The positions first .. first + count - 1, at most 64.
struct Block {
    int first, count;
    Run run[RUNS];  // those beyond `count` repeat the last

    int runs() const { return (count + LANES - 1) / LANES; }
    // The runs of a form, as bits.
    unsigned of(Form form) const {
        unsigned found = 0;
        for (int n = 0; n < runs(); n++) found |= unsigned(run[n].form == form) << n;
        return found;
    }
};

// One KV head of a sequence in one layer.
struct Sequence {
    const Pool& pool;
    int layer, head, head_dim;
    const int32_t* table;

    Run run(int position) const {
        const int64_t page = table[position / pool.page_size];
        const int offset = position % pool.page_size;
        if (!pool.coded(page))
            return {Form::PLAIN,
                    pool.keys(layer, page, head, head_dim) + 2 * offset,
                    pool.values(layer, page, head, head_dim) + size_t(offset) * head_dim,
                    2 * size_t(pool.page_size),
                    {},
                    {}};
        return coded(pool.slot(layer, page - pool.frames), offset);
    }
    Run coded(const uint8_t* slot, int offset) const {
        Run run{Form::CODES, nullptr, nullptr, 0, {}, {}};
        const size_t groups = head_dim / GROUP, at = head * (pool.page_size / LANES);
        for (int side = 0; side < 2; side++) {
            const uint8_t* scales = slot + pool.scale_at[side];
            const int kind = pool.kind[side];
            run.codes[side] =
                slot + pool.code_at[side] + (at + offset / LANES) * groups * code_bytes(kind);
            run.scales[side] = kind == FP8 ? scales + head * sizeof(float)
                                           : scales + (at + offset / LANES) * groups * 2 * LANES;
        }
        return run;
    }

    Block block(int first, int stop) const {
        Block block{first, stop - first < KEYS ? stop - first : KEYS, {}};
        for (int n = 0; n < RUNS; n++)
            block.run[n] = n < block.runs() ? run(first + n * LANES) : block.run[n - 1];
        return block;
    }

    // Whether one of the positions start .. stop - 1 is in a coded page.
    bool has_codes(int start, int stop) const {
        for (int page = start / pool.page_size; page * pool.page_size < stop; page++)
            if (pool.coded(table[page])) return true;
        return false;
    }

    // Send for a run of a block to come.
    void fetch_run(const Run& r) const {
        if (r.form == Form::PLAIN) {
            for (int i = 0; i < head_dim / 2; i++) fetch(r.keys + i * r.key_step);
            for (int i = 0; i < LANES * head_dim; i += 32) fetch(r.values + i);
        } else {
            const int groups = head_dim / GROUP;
            for (int side = 0; side < 2; side++) {
                const int bytes = groups * code_bytes(pool.kind[side]);
                for (int i = 0; i < bytes; i += 64) fetch(r.codes[side] + i);
                for (int g = 0; g < groups; g += 2) fetch(r.group_scales(side, g));
            }
        }
    }
    void fetch_block(const Block& block) const {
        for (int n = 0; n < block.runs(); n++) fetch_run(block.run[n]);
    }
};

}  // namespace pageturn
