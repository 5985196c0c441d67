// Coding full pages, by runs of sixteen positions of a head (pages.h says where what lies).
//
// Rounds as engine/coded/codec.py does: a scale is float16 of the largest magnitude over the largest
// code (for keys in 4 bits, of the number furthest from 0 over -8), a code the nearest whole number
// to number / scale, ties to even.

#pragma once

#include <cmath>

#include "codes.h"

namespace pageturn {

constexpr float LARGEST_FP16 = 65504, LARGEST_FP8 = 448;
constexpr float most_code(int kind) { return kind == INT4 ? 7 : 127; }

constexpr float LEAST_INT4 = -8;  // of keys, whose scales may be negative
constexpr float NOTHING = 1e30f;  // divides what is all zeros

// What to divide by for each lane's scale.
inline F divisors(const fp16* scales) {
    float wide[LANES];
    store(wide, load_fp16(scales));
    for (float& scale : wide) scale = scale != 0 ? scale : NOTHING;
    return load(wide);
}

inline void store_scales(fp16* out, F number, float its_code) {
    const F scales = number / splat(its_code);
    store_fp16(out, max(min(scales, splat(LARGEST_FP16)), splat(-LARGEST_FP16)));
}

template <int KIND> inline I code(F x, F divisor, float least) {
    const I whole = to_ints(min(max(x / divisor, splat(least)), splat(most_code(KIND))));
    return KIND == INT4 ? whole + splat_bits(uint32_t(ZERO_CODE)) : whole & splat_bits(255);
}

// Bits of the nearest 8-bit float (4 of exponent, 3 of mantissa), for |x| <= 448.
inline uint32_t fp8_code(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    if (magnitude < 0x3c800000) return sign | uint32_t(std::nearbyint(std::fabs(x) * 512));
    return sign | (((magnitude + 0x7ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3));
}
template <> inline I code<FP8>(F x, F divisor, float) {
    float wide[LANES], by[LANES];
    uint32_t out[LANES];
    store(wide, x / divisor);
    store(by, divisor);
    for (int i = 0; i < LANES; i++) out[i] = by[i] < NOTHING ? fp8_code(wide[i]) : 0;
    return bits(out);
}

// A lane's codes, in the order in which unpack (matrix.h) takes them apart.
template <int KIND> inline I packed(const I* c) {
    if (KIND == INT4)
        return c[0] | ints_left<4>(c[2]) | ints_left<8>(c[4]) | ints_left<12>(c[6]) |
               ints_left<16>(c[1]) | ints_left<20>(c[3]) | ints_left<24>(c[5]) |
               ints_left<28>(c[7]);
    return c[0] | ints_left<8>(c[2]) | ints_left<16>(c[1]) | ints_left<24>(c[3]);
}

// Sixteen rows x (lanes) times m: out [d] from rows [d] of sixteen lanes each.
inline void times_lanes(const F* x, const float* m, int d, F* out) {
    constexpr int AT_ONCE = 8;
    for (int j = 0; j < d; j += AT_ONCE) {
        F sums[AT_ONCE];
        for (F& sum : sums) sum = zero();
        for (int i = 0; i < d; i++) {
#pragma GCC unroll 8
            for (int n = 0; n < AT_ONCE; n++)
                sums[n] = fma(x[i], splat(m[size_t(i) * d + j + n]), sums[n]);
        }
        for (int n = 0; n < AT_ONCE; n++) out[j + n] = sums[n];
    }
}

// Where a run's codes and scales go, and what stands in between: `x` and `y` hold [16 d] numbers.
struct Coding {
    int d;
    const float* hadamard;
    uint8_t* codes;
    void* scales;
    F *x, *y;
};

// Of low..high the end that is further from 0.
inline F furthest(F low, F high) {
    float ends[LANES], others[LANES];
    store(ends, high), store(others, low);
    for (int i = 0; i < LANES; i++)
        if (ends[i] < -others[i]) ends[i] = others[i];
    return load(ends);
}

// A page's scale in 8-bit floats was found beforehand.
template <int KIND> inline F scale_of(const Coding& c, int g, F number, float its_code) {
    if (KIND == FP8) {
        const float scale = *(const float*)c.scales;
        return splat(scale > 0 ? scale : NOTHING);
    }
    fp16* out = (fp16*)c.scales + g * LANES;
    store_scales(out, number, its_code);
    return divisors(out);
}

template <int KIND> inline void encode_keys(const Run& run, const Coding& c) {
    constexpr int IN_LANE = KIND == INT4 ? 8 : 4;
    for (int i = 0; i < c.d / 2; i++) {
        const I pair = bits(run.keys + i * run.key_step);
        c.x[2 * i] = half_low(pair), c.x[2 * i + 1] = half_high(pair);
    }
    const F* rows = c.x;
    if (rotates(KIND)) times_lanes(c.x, c.hadamard, c.d, c.y), rows = c.y;
    uint8_t* out = c.codes;
    const float most = most_code(KIND), least = KIND == INT4 ? LEAST_INT4 : -most;
    for (int g = 0; g < c.d / GROUP; g++, rows += GROUP) {
        F low = rows[0], high = rows[0];
        for (int i = 1; i < GROUP; i++) low = min(low, rows[i]), high = max(high, rows[i]);
        const F divisor = KIND == INT4 ? scale_of<KIND>(c, g, furthest(low, high), LEAST_INT4)
                                       : scale_of<KIND>(c, g, max(abs(low), abs(high)), most);
        for (int i = 0; i < GROUP; i += IN_LANE, out += 64) {
            I codes[IN_LANE];
            for (int n = 0; n < IN_LANE; n++) codes[n] = code<KIND>(rows[i + n], divisor, least);
            store_bits(out, packed<KIND>(codes));
        }
    }
}

template <int KIND> inline void encode_values(const Run& run, const Coding& c) {
    constexpr int IN_LANE = KIND == INT4 ? 8 : 4;
    const int d = c.d;
    const float most = most_code(KIND);
    float *x = (float*)c.x, *rows = x;  // [16, d]
    for (int k = 0; k < LANES; k += 2)
        for (int i = 0; i < d; i += LANES) {
            const I pair = bits(run.values + size_t(k) * d + 2 * i);
            store(x + k * d + i, half_low(pair));
            store(x + (k + 1) * d + i, half_high(pair));
        }
    if (rotates(KIND)) {
        rows = (float*)c.y;
        for (int k = 0; k < LANES; k++) times(x + k * d, c.hadamard, d, rows + k * d);
    }
    for (int g = 0; g < d / GROUP; g++) {
        float largest[LANES], divisor[LANES];
        for (int k = 0; k < LANES; k++) {
            const float* row = rows + k * d + g * GROUP;
            largest[k] = greatest(max(abs(load(row)), abs(load(row + LANES))));
        }
        store(divisor, scale_of<KIND>(c, g, load(largest), most));
        for (int half = 0; half < 2; half++) {
            const int at = g * GROUP + half * LANES;
            uint8_t* out = c.codes + size_t(at) * LANES * (KIND == INT4 ? 4 : 8) / 8;
            for (int k = 0; k < LANES; k += IN_LANE, out += 64) {
                I codes[IN_LANE];
                for (int n = 0; n < IN_LANE; n++) {
                    const F x = load(rows + (k + n) * d + at);
                    codes[n] = code<KIND>(x, splat(divisor[k + n]), -most);
                }
                store_bits(out, packed<KIND>(codes));
            }
        }
    }
}

inline float largest_of(const bf16* x, int count) {
    F largest = zero();
    for (int i = 0; i < count; i += 2 * LANES) {
        const I pair = bits(x + i);
        largest = max(largest, max(abs(half_low(pair)), abs(half_high(pair))));
    }
    return greatest(largest);
}

// One head's part of a page in full precision, coded to a slot.
inline void encode_page(const Pool& pool, int layer, int32_t page, int head, int d, F* space,
                        uint8_t* slot) {
    const Sequence source{pool, layer, head, d, &page};
    for (int side = 0; side < 2; side++) {
        if (pool.kind[side] != FP8) continue;
        const bf16* x = side == OF_KEYS ? source.run(0).keys : source.run(0).values;
        ((float*)(slot + pool.scale_at[side]))[head] =
            largest_of(x, pool.page_size * d) / LARGEST_FP8;
    }
    for (int at = 0; at < pool.page_size; at += LANES) {
        const Run run = source.run(at), out = source.coded(slot, at);
        Coding c{d, pool.hadamard, nullptr, nullptr, space, space + d};
        const auto go = [&](int side, auto coder) {
            c.codes = (uint8_t*)out.codes[side], c.scales = (void*)out.scales[side];
            coder(run, c);
        };
        switch (pool.kind[OF_KEYS]) {
            case INT8: go(OF_KEYS, encode_keys<INT8>); break;
            case INT4: go(OF_KEYS, encode_keys<INT4>); break;
            default: go(OF_KEYS, encode_keys<FP8>);
        }
        switch (pool.kind[OF_VALUES]) {
            case INT8: go(OF_VALUES, encode_values<INT8>); break;
            case INT4: go(OF_VALUES, encode_values<INT4>); break;
            default: go(OF_VALUES, encode_values<FP8>);
        }
    }
}

}  // namespace pageturn
