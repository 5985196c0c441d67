// Products with coded keys and values, without decoding them first, and decoding them where many
// rows share the work.
//
// Both products are sums of integers, as with weights (matrix.h): a query or a row of weights is
// rounded to 16 bits with a scale for 32 of them. Codes of 4 bits are stored plus 8, so that they
// have no sign; 8 times the sum of the other side is taken away again.

#pragma once

#include "pages.h"

namespace pageturn {

constexpr float ZERO_CODE = 8;  // of 4 bits

// out = x m, for x [d] and m [d, d].
inline void times(const float* x, const float* m, int d, float* out) {
    for (int j = 0; j < d; j += LANES) {
        F even = zero(), odd = zero();
        for (int i = 0; i < d; i += 2) {
            even = fma(splat(x[i]), load(m + size_t(i) * d + j), even);
            odd = fma(splat(x[i + 1]), load(m + size_t(i + 1) * d + j), odd);
        }
        store(out + j, even + odd);
    }
}

// Scores of M queries (from row `at` of `q` on) and the sixteen keys of a run.
template <int KIND, int M>
inline void score_codes(const Run& run, int d, const Words& q, int at, F* scores) {
    const int groups = d / GROUP;
    F sums[M];  // of its own, so that it stays in registers
    for (int m = 0; m < M; m++) sums[m] = zero();
    for (int g = 0; g < groups; g++) {
        I pairs[16];
        unpack<KIND>(run.codes[OF_KEYS] + g * code_bytes(KIND), pairs);
        const F scale = load_fp16(run.group_scales(OF_KEYS, g));
#pragma GCC unroll 6
        for (int m = 0; m < M; m++) {
            const int16_t* words = q.q + size_t(at + m) * d + g * GROUP;
            I even = no_bits(), odd = no_bits();
#pragma GCC unroll 8
            for (int j = 0; j < 16; j += 2) {
                even = dot_words(even, pairs[j], splat_pair(words + 2 * j));
                odd = dot_words(odd, pairs[j + 1], splat_pair(words + 2 * j + 2));
            }
            const size_t group = size_t(at + m) * groups + g;
            F dot = (to_floats(even) + to_floats(odd)) * splat(q.scales[group]);
            if (KIND == INT4) dot = dot - splat(ZERO_CODE * q.sums[group]);
            sums[m] = fma(dot, scale, sums[m]);
        }
    }
    for (int m = 0; m < M; m++) scores[m] = sums[m];
}

// Add the values of a block's coded runs, times weights [M, 64], to mixed [M, d].
template <int KIND, int M>
inline void mix_codes(const Block& block, int d, const float* weights, float* mixed) {
    const unsigned coded = block.of(Form::CODES);
    for (int g = 0; g < d / GROUP; g++) {
        int16_t words[M * KEYS];
        F unit[M], offset[M];
        for (int m = 0; m < M; m++) {
            F scaled[RUNS], largest = zero();
            for (int n = 0; n < RUNS; n++) {
                scaled[n] = zero();
                if (coded >> n & 1)
                    scaled[n] = load(weights + m * KEYS + n * LANES) *
                                load_fp16(block.run[n].group_scales(OF_VALUES, g));
                largest = max(largest, scaled[n]);
            }
            const float most = greatest(largest), inverse = most > 0 ? 32767.0f / most : 0.0f;
            for (int n = 0; n < RUNS; n++)
                store_words(words + m * KEYS + n * LANES, scaled[n] * splat(inverse));
            unit[m] = splat(most / 32767.0f);
            if (KIND == INT4) {
                const I ones = splat_bits(0x00010001);
                const I half = dot_words(no_bits(), bits(words + m * KEYS), ones);
                const I total = dot_words(half, bits(words + m * KEYS + KEYS / 2), ones);
                offset[m] = splat(-ZERO_CODE * sum(to_floats(total)));
            }
        }
        I sums[M][2];
        for (int m = 0; m < M; m++) sums[m][0] = sums[m][1] = no_bits();
        for (int n = 0; n < RUNS; n++) {
            if (!(coded >> n & 1)) continue;
            I pairs[16];
            unpack<KIND>(block.run[n].codes[OF_VALUES] + g * code_bytes(KIND), pairs);
#pragma GCC unroll 6
            for (int m = 0; m < M; m++) {
                const int16_t* word = words + m * KEYS + n * LANES;
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) {
                    const I weight = splat_pair(word + 2 * j);
                    sums[m][0] = dot_words(sums[m][0], pairs[j], weight);
                    sums[m][1] = dot_words(sums[m][1], pairs[8 + j], weight);
                }
            }
        }
        for (int m = 0; m < M; m++)
            for (int half = 0; half < 2; half++) {
                float* out = mixed + size_t(m) * d + g * GROUP + half * LANES;
                F dot = to_floats(sums[m][half]);
                if (KIND == INT4) dot = dot + offset[m];
                store(out, fma(dot, unit[m], load(out)));
            }
    }
}

// -- decoded to bfloat16 ---------------------------------------------------------------------

// The two numbers of each lane, without scales.
template <int KIND> inline void numbers(I pair, F& low, F& high) {
    if (KIND == FP8) {  // laid out as bfloat16, whose exponents begin 120 lower
        const I laid = (pair & splat_bits(0x80008000)) |
                       (words_right<4>(words_left<8>(pair)) & splat_bits(0x07f007f0));
        low = half_low(laid) * splat(0x1p120f);
        high = half_high(laid) * splat(0x1p120f);
    } else {
        low = to_floats(words_to_ints_low(pair));
        high = to_floats(words_to_ints_high(pair));
        if (KIND == INT4) low = low - splat(ZERO_CODE), high = high - splat(ZERO_CODE);
    }
}

// keys [d / 2][64][2] and values [32][d][2] of a run of a block: out is where it begins.
template <int KIND> inline void decode_keys(const Run& run, int d, bf16* out) {
    for (int g = 0; g < d / GROUP; g++) {
        I pairs[16];
        unpack<KIND == FP8 ? INT8 : KIND>(run.codes[OF_KEYS] + g * code_bytes(KIND), pairs);
        const F scale = KIND == FP8 ? splat(*(const float*)run.scales[OF_KEYS])
                                    : load_fp16(run.group_scales(OF_KEYS, g));
        for (int j = 0; j < 16; j++, out += 2 * KEYS) {
            F low, high;
            numbers<KIND>(pairs[j], low, high);
            store_bits(out, narrow_pair(low * scale, high * scale));
        }
    }
}

template <int KIND> inline void decode_values(const Run& run, int d, bf16* out) {
    for (int g = 0; g < d / GROUP; g++) {
        I pairs[16];
        unpack<KIND == FP8 ? INT8 : KIND>(run.codes[OF_VALUES] + g * code_bytes(KIND), pairs);
        float scale[LANES];
        store(scale, KIND == FP8 ? splat(*(const float*)run.scales[OF_VALUES])
                                 : load_fp16(run.group_scales(OF_VALUES, g)));
        for (int i = 0; i < 16; i++) {
            const int j = i % 8;
            F low, high;
            numbers<KIND>(pairs[i], low, high);
            store_bits(out + size_t(j) * 2 * d + 2 * (g * GROUP + i / 8 * LANES),
                       narrow_pair(low * splat(scale[2 * j]), high * splat(scale[2 * j + 1])));
        }
    }
}

// Decode a block's coded runs to `space`, keys and values of a block one after the other.
inline void decode(Block& block, const Pool& pool, int d, bf16* space) {
    for (int n = 0; n < block.runs(); n++) {
        Run& run = block.run[n];
        if (run.form != Form::CODES) continue;
        bf16 *keys = space + n * 2 * LANES, *values = space + size_t(KEYS + n * LANES) * d;
        switch (pool.kind[OF_KEYS]) {
            case INT8: decode_keys<INT8>(run, d, keys); break;
            case INT4: decode_keys<INT4>(run, d, keys); break;
            default: decode_keys<FP8>(run, d, keys);
        }
        switch (pool.kind[OF_VALUES]) {
            case INT8: decode_values<INT8>(run, d, values); break;
            case INT4: decode_values<INT4>(run, d, values); break;
            default: decode_values<FP8>(run, d, values);
        }
        run.form = Form::DECODED;
        run.keys = keys, run.values = values, run.key_step = 2 * KEYS;
    }
    for (int n = block.runs(); n < RUNS; n++) block.run[n] = block.run[n - 1];
}

}  // namespace pageturn
