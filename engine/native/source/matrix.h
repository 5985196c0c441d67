// Weight matrices in blocks of sixteen rows, and products with them.
//
//   y[m][n] = sum over k of x[m][k] * w[n][k]        x: [m, columns], w: [rows, columns]
//
// A block holds sixteen rows of w side by side, one a lane, so that no product ever needs a sum
// across lanes. Along k it is cut into groups of 32 columns, which share a scale (and a least value):
//
//   kind      a group of 16 x 32 weights                                       w =
//   bfloat16  16 x 64 bytes: lane n of part j holds k = 2j, 2j + 1             the number itself
//   int8       8 x 64 bytes: lane n of part j holds k = 4j + 0, 2, 1, 3        scale * q
//   int4       4 x 64 bytes: lane n of part j holds k = 8j + 0, 2, 4, 6 in     scale * q + least
//              the low half's nibbles and 8j + 1, 3, 5, 7 in the high half's
//
// These orders make the two numbers of a pair come out as the two halves of a lane after one shift.
// A group's codes are followed by its sixteen scales in float16 and (int4) its least values, so that
// a product reads memory from front to back.
//
// A few rows of x are multiplied in integers: x is rounded to 16 bits with a scale for each group,
// so the sums are as good as float32 ones. Many rows are multiplied in bfloat16, on blocks that are
// decoded once for all rows.

#pragma once

#include "simd.h"

namespace pageturn {

constexpr int GROUP = 32, PANEL = 2 * LANES;
constexpr int FEW = 16;        // rows of x up to which the integer product is used
constexpr int TOGETHER = 8;    // of them at once
constexpr int AHEAD = 5120;    // bytes that a product's reading is ahead of its work

enum Kind : int32_t { BFLOAT16 = 0, INT8 = 1, INT4 = 2, FP8 = 3 };  // FP8: of pages only

struct Matrix {
    int32_t rows, columns;  // rows: a multiple of 32, padded with zeros
    int32_t kind;
    int32_t block_bytes;
    const uint8_t* blocks;
    const float* bias;  // [rows] or null

    int groups() const { return columns / GROUP; }
    int panels() const { return rows / PANEL; }
    const uint8_t* block(int i) const { return blocks + size_t(i) * block_bytes; }
};

constexpr int code_bytes(int kind) { return kind == INT4 ? 256 : kind == BFLOAT16 ? 1024 : 512; }
constexpr int group_bytes(int kind) {
    return code_bytes(kind) + (kind == INT4 ? 64 : kind == INT8 ? 32 : 0);
}
template <int KIND> inline F scales(const uint8_t* group) {
    return load_fp16((const fp16*)(group + code_bytes(KIND)));
}
template <int KIND> inline F leasts(const uint8_t* group) {
    return KIND == INT4 ? load_fp16((const fp16*)(group + code_bytes(KIND)) + LANES) : zero();
}

// A group's sixteen parts of pairs, as words.
template <int KIND> inline void unpack(const uint8_t* codes, I* pairs) {
    if (KIND == INT4) {
        const I nibble = splat_bits(0x000f000f);
        for (int j = 0; j < 4; j++) {
            const I part = bits(codes + 64 * j);
            pairs[4 * j] = part & nibble;
            pairs[4 * j + 1] = words_right<4>(part) & nibble;
            pairs[4 * j + 2] = words_right<8>(part) & nibble;
            pairs[4 * j + 3] = words_right<12>(part);
        }
    } else {
        for (int j = 0; j < 8; j++) {
            const I part = bits(codes + 64 * j);
            pairs[2 * j] = words_right_signed<8>(words_left<8>(part));
            pairs[2 * j + 1] = words_right_signed<8>(part);
        }
    }
}

// Rows of x as 16-bit integers with a scale a group: x = scale * q.
struct Words {
    int16_t* q;     // [rows, columns]
    float* scales;  // [rows, groups]
    float* sums;    // [rows, groups]: scale * sum of q, for the least values

    void set(int row, const float* x, int columns) const {
        for (int g = 0; g < columns / GROUP; g++) {
            const F low = load(x + g * GROUP), high = load(x + g * GROUP + LANES);
            const float largest = greatest(max(abs(low), abs(high)));
            const float inverse = largest > 0 ? 32767.0f / largest : 0.0f;
            int16_t* out = q + size_t(row) * columns + g * GROUP;
            store_words(out, low * splat(inverse));
            store_words(out + LANES, high * splat(inverse));
            int total = 0;
            for (int k = 0; k < GROUP; k++) total += out[k];
            const size_t at = size_t(row) * (columns / GROUP) + g;
            scales[at] = largest / 32767.0f;
            sums[at] = scales[at] * float(total);
        }
    }
};

// A block against M rows of x: sums[m] has sixteen outputs.
template <int KIND, int M>
inline void few(const Matrix& w, const uint8_t* block, const Words& x, int first, F* out) {
    F sums[M];  // of its own, so that it stays in registers
    const int groups = w.groups(), columns = w.columns;
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) sums[m] = zero();
    for (int g = 0; g < groups; g++, block += group_bytes(KIND)) {
        I pairs[16];
        unpack<KIND>(block, pairs);
        const F scale = scales<KIND>(block), least = leasts<KIND>(block);
        for (int line = 0; line < group_bytes(KIND); line += 64) fetch(block + AHEAD + line);
#pragma GCC unroll 8
        for (int m = 0; m < M; m++) {
            const int16_t* q = x.q + size_t(first + m) * columns + g * GROUP;
            I even = no_bits(), odd = no_bits();
#pragma GCC unroll 8
            for (int j = 0; j < 16; j += 2) {
                even = dot_words(even, pairs[j], splat_pair(q + 2 * j));
                odd = dot_words(odd, pairs[j + 1], splat_pair(q + 2 * j + 2));
            }
            const size_t at = size_t(first + m) * groups + g;
            const F dot = to_floats(even) + to_floats(odd);
            sums[m] = fma(dot, scale * splat(x.scales[at]), sums[m]);
            if (KIND == INT4) sums[m] = fma(least, splat(x.sums[at]), sums[m]);
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; m++) out[m] = sums[m];
}

template <int KIND>
inline void few(const Matrix& w, const uint8_t* block, const Words& x, int first, int m, F* sums) {
    switch (m) {
        case 1: return few<KIND, 1>(w, block, x, first, sums);
        case 2: return few<KIND, 2>(w, block, x, first, sums);
        case 3: return few<KIND, 3>(w, block, x, first, sums);
        case 4: return few<KIND, 4>(w, block, x, first, sums);
        case 5: return few<KIND, 5>(w, block, x, first, sums);
        case 6: return few<KIND, 6>(w, block, x, first, sums);
        case 7: return few<KIND, 7>(w, block, x, first, sums);
        default: return few<KIND, 8>(w, block, x, first, sums);
    }
}

// A block decoded to bfloat16: lane n of out[k / 2 * stride] holds w[n][k] and w[n][k + 1].
template <int KIND>
inline void decode_block(const uint8_t* block, int groups, uint8_t* out, int stride) {
    for (int g = 0; g < groups; g++, block += group_bytes(KIND)) {
        I pairs[16];
        unpack<KIND>(block, pairs);
        const F scale = scales<KIND>(block), least = leasts<KIND>(block);
        for (int j = 0; j < 16; j++, out += stride) {
            const F low = fma(to_floats(words_to_ints_low(pairs[j])), scale, least);
            const F high = fma(to_floats(words_to_ints_high(pairs[j])), scale, least);
            store_bits(out, narrow_pair(low, high));
        }
    }
}

// One row of w in float32: what an embedding is looked up with.
inline void decode_row(const Matrix& w, int row, float* out) {
    const int lane = row % LANES, bytes = code_bytes(w.kind);
    for (int k = 0; k < w.columns; k++) {
        const int r = k % GROUP;
        const uint8_t* group = w.block(row / LANES) + size_t(k / GROUP) * group_bytes(w.kind);
        const fp16* scale = (const fp16*)(group + bytes) + lane;
        if (w.kind == BFLOAT16) {
            out[k] = widen(((const bf16*)group)[r / 2 * 2 * LANES + 2 * lane + r % 2]);
        } else if (w.kind == INT8) {
            const int place[4] = {0, 2, 1, 3};
            out[k] = _cvtsh_ss(*scale) * int8_t(group[r / 4 * 64 + lane * 4 + place[r % 4]]);
        } else {
            const uint16_t half = ((const uint16_t*)(group + r / 8 * 64))[2 * lane + r % 2];
            const int q = half >> (r % 8 / 2 * 4) & 15;
            out[k] = _cvtsh_ss(*scale) * q + _cvtsh_ss(scale[LANES]);
        }
    }
}

// M rows of x (bfloat16, `columns` apart) against a decoded pair of blocks.
template <int M>
inline void many(const bf16* x, int columns, const uint8_t* left, const uint8_t* right, int stride,
                 F (*out)[2]) {
    F sums[M][2];  // of its own, so that it stays in registers
#pragma GCC unroll 12
    for (int m = 0; m < M; m++) sums[m][0] = sums[m][1] = zero();
    for (int k = 0; k < columns / 2; k++) {
        const I a = bits(left + size_t(k) * stride), b = bits(right + size_t(k) * stride);
#pragma GCC unroll 12
        for (int m = 0; m < M; m++) {
            const I pair = splat_pair(x + size_t(m) * columns + 2 * k);
            sums[m][0] = dot_halves(sums[m][0], a, pair);
            sums[m][1] = dot_halves(sums[m][1], b, pair);
        }
    }
#pragma GCC unroll 12
    for (int m = 0; m < M; m++) out[m][0] = sums[m][0], out[m][1] = sums[m][1];
}

#if defined(__AVX512F__)
constexpr int TILE = 12;  // rows of x whose sums stay in registers
#else
constexpr int TILE = 2;
#endif

inline void many(const bf16* x, int m, int columns, const uint8_t* left, const uint8_t* right,
                 int stride, F (*sums)[2]) {
    switch (m) {
        case 1: return many<1>(x, columns, left, right, stride, sums);
        case 2: return many<2>(x, columns, left, right, stride, sums);
#if defined(__AVX512F__)
        case 3: return many<3>(x, columns, left, right, stride, sums);
        case 4: return many<4>(x, columns, left, right, stride, sums);
        case 5: return many<5>(x, columns, left, right, stride, sums);
        case 6: return many<6>(x, columns, left, right, stride, sums);
        case 7: return many<7>(x, columns, left, right, stride, sums);
        case 8: return many<8>(x, columns, left, right, stride, sums);
        case 9: return many<9>(x, columns, left, right, stride, sums);
        case 10: return many<10>(x, columns, left, right, stride, sums);
        case 11: return many<11>(x, columns, left, right, stride, sums);
        default: return many<12>(x, columns, left, right, stride, sums);
#endif
    }
}

}  // namespace pageturn
