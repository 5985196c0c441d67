// Products with coded keys and values, without decoding them first, and decoding them where many
// rows share the work.
//
// Both products are sums of integers, as with weights (matrix.h): a query or a row of weights is
// rounded to 16 bits with a scale for 32 of them. Codes of 4 bits are stored plus 8.

#pragma once

#include "pages.h"

namespace pageturn {

constexpr float ZERO_CODE = 8;  // of 4 bits
constexpr float TINY = 1e-30f;  // weights that are nothing

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

// Integer products of codes and words. `ordered` brings 32 words into the order that `add` wants.
#if defined(PAGETURN_DOT_BYTES)

// Words in two bytes each, by four codes at a time, which so need not become words themselves. Only
// the side of the words may be without a sign: signed words are moved up by 2^15, and that many
// times the sum of the codes is taken away again.
template <int KIND> struct Product {
    static constexpr int PARTS = 8;  // of a group of 32 codes
    I low = no_bits(), high = no_bits();

    static void unpack(const uint8_t* codes, I* parts) {
        const I nibbles = splat_bits(0x0f0f0f0f), eights = splat_bits(0x08080808);
        for (int j = 0; j < PARTS; j++) {
            if (KIND == INT8) parts[j] = bits(codes + 64 * j);
            else if (j % 2 == 0) parts[j] = bytes_minus(bits(codes + 32 * j) & nibbles, eights);
            else
                parts[j] =
                    bytes_minus(words_right<4>(bits(codes + 32 * (j - 1))) & nibbles, eights);
        }
    }
    // Of eight words the low bytes of two parts, then the high ones; a part's bytes as unpack
    // leaves those of codes.
    static I ordered(I words) {
        static const uint8_t order[2][16] = {
            {0, 4, 2, 6, 8, 12, 10, 14, 1, 5, 3, 7, 9, 13, 11, 15},
            {0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13, 7, 15}};
        return shuffle_bytes(words, order[KIND == INT4]);
    }
    static I moved_up(I words) { return words ^ splat_bits(0x80008000); }
    static I moved_up_by(const I* parts) {
        I even = no_bits(), odd = no_bits();
        for (int j = 0; j < PARTS; j += 2) {
            even = dot_bytes(even, splat_bits(0x01010101), parts[j]);
            odd = dot_bytes(odd, splat_bits(0x01010101), parts[j + 1]);
        }
        return ints_left<15>(even + odd);
    }
    void add(I part, const int16_t* words, int j) {
        const int16_t* at = words + j / 2 * 8 + j % 2 * 2;
        low = dot_bytes(low, splat_pair(at), part);
        high = dot_bytes(high, splat_pair(at + 4), part);
    }
    I sum() const { return ints_left<8>(high) + low; }
};

#else

template <int KIND> struct Product {
    static constexpr int PARTS = 16;
    I even = no_bits(), odd = no_bits();

    static void unpack(const uint8_t* codes, I* parts) {
        pageturn::unpack<KIND>(codes, parts);
        if (KIND == INT4)
            for (int j = 0; j < PARTS; j++)
                parts[j] = words_minus(parts[j], splat_bits(0x00080008));
    }
    static I ordered(I words) { return words; }
    static I moved_up(I words) { return words; }
    static I moved_up_by(const I*) { return no_bits(); }
    void add(I part, const int16_t* words, int j) {
        I& sum = j % 2 ? odd : even;
        sum = dot_words(sum, part, splat_pair(words + 2 * j));
    }
    I sum() const { return even + odd; }
};

#endif

// Queries as words, ready for score_codes.
template <int KIND> inline void set_query(const Words& q, int row, const float* x, int d) {
    using P = Product<KIND>;
    q.set(row, x, d);
    int16_t* words = q.q + size_t(row) * d;
    for (int i = 0; i < d; i += GROUP)
        store_bits(words + i, P::ordered(P::moved_up(bits(words + i))));
}

// Scores of M queries (from row `at` of `q` on) and the sixteen keys of a run.
template <int KIND, int M>
inline void score_codes(const Run& run, int d, const Words& q, int at, F* scores) {
    using P = Product<KIND>;
    const int groups = d / GROUP;
    F sums[M];  // of its own, so that it stays in registers
    for (int m = 0; m < M; m++) sums[m] = zero();
    for (int g = 0; g < groups; g++) {
        I parts[P::PARTS];
        P::unpack(run.codes[OF_KEYS] + g * code_bytes(KIND), parts);
        const I up = P::moved_up_by(parts);
        const F scale = load_fp16(run.group_scales(OF_KEYS, g));
#pragma GCC unroll 6
        for (int m = 0; m < M; m++) {
            const int16_t* words = q.q + size_t(at + m) * d + g * GROUP;
            P product;
#pragma GCC unroll 16
            for (int j = 0; j < P::PARTS; j++) product.add(parts[j], words, j);
            const size_t group = size_t(at + m) * groups + g;
            const F dot = to_floats(product.sum() - up);
            sums[m] = fma(dot, scale * splat(q.scales[group]), sums[m]);
        }
    }
    for (int m = 0; m < M; m++) scores[m] = sums[m];
}

// mixed [M, d] = mixed * decay + the values of a block's coded runs times weights [M, 64], of which
// none is more than its row's `most`.
template <int KIND, int M>
inline void mix_codes(const Block& block, int d, const float* weights, const float* most,
                      const float* decay, float* mixed) {
    using P = Product<KIND>;
    const unsigned coded = block.of(Form::CODES);
    float scale[M], unit[M];
    for (int m = 0; m < M; m++) {
        scale[m] = most[m] > TINY ? 32767.0f / most[m] : 0.0f;
        unit[m] = most[m] / 32767.0f;
    }
    for (int g = 0; g < d / GROUP; g++) {
        F scales[RUNS], largest = zero();  // of the values; zero where a run isn't coded
        for (int n = 0; n < RUNS; n++) {
            scales[n] = zero();
            if (coded >> n & 1) scales[n] = load_fp16(block.run[n].group_scales(OF_VALUES, g));
            largest = max(largest, scales[n]);
        }
        const float group = greatest(largest);
        for (int n = 0; n < RUNS; n++) scales[n] = scales[n] * splat(group > 0 ? 1 / group : 0.0f);
        int16_t words[M * KEYS];
        for (int m = 0; m < M; m++)
            for (int n = 0; n < RUNS; n += 2) {
                const float* row = weights + m * KEYS + n * LANES;
                const F up = splat(scale[m]);
                store_bits(words + m * KEYS + n * LANES,
                           P::ordered(to_words(load(row) * up * scales[n],
                                               load(row + LANES) * up * scales[n + 1])));
            }
        P left[M], right[M];  // of sixteen dimensions each
        for (int n = 0; n < RUNS; n++) {
            if (!(coded >> n & 1)) continue;
            I parts[P::PARTS];
            P::unpack(block.run[n].codes[OF_VALUES] + g * code_bytes(KIND), parts);
#pragma GCC unroll 6
            for (int m = 0; m < M; m++) {
                const int16_t* row = words + m * KEYS + n * LANES;
#pragma GCC unroll 8
                for (int j = 0; j < P::PARTS / 2; j++) {
                    left[m].add(parts[j], row, j);
                    right[m].add(parts[P::PARTS / 2 + j], row, j);
                }
            }
        }
#pragma GCC unroll 6
        for (int m = 0; m < M; m++) {
            float* out = mixed + size_t(m) * d + g * GROUP;
            const F by = splat(unit[m] * group), fade = splat(decay[m]);
            store(out, fma(to_floats(left[m].sum()), by, load(out) * fade));
            store(out + LANES, fma(to_floats(right[m].sum()), by, load(out + LANES) * fade));
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
