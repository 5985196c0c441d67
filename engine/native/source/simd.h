// Sixteen lanes, whatever the machine calls them.
//
// Every kernel is written once, on vectors of sixteen 32-bit lanes: one register with AVX-512, two
// with AVX2. Two multiply-adds carry all the work, and both take pairs of 16-bit numbers, one pair
// a lane: dot_words (integers, exact) and dot_halves (bfloat16, float32 sums).

#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace pageturn {

constexpr int LANES = 16;
using bf16 = uint16_t;
using fp16 = uint16_t;

inline float widen(bf16 x) {
    uint32_t bits = uint32_t(x) << 16;
    float wide;
    std::memcpy(&wide, &bits, 4);
    return wide;
}

// Not the intrinsic: the compiler takes a function that does nothing but fetch for one without any
// effect, and drops its calls.
inline void fetch(const void* p) { __asm__ volatile("prefetcht0 %0" : : "m"(*(const char*)p)); }

// To nearest, ties to even. A NaN stays one.
inline bf16 narrow(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return bf16((bits >> 16) | 0x40);
    return bf16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

struct F {  // sixteen floats
    __m512 v;
};
struct I {  // sixteen 32-bit lanes of codes
    __m512i v;
};

inline F zero() { return {_mm512_setzero_ps()}; }
inline F splat(float x) { return {_mm512_set1_ps(x)}; }
inline F load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
inline F operator+(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F operator-(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F operator*(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F operator/(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F abs(F a) { return {_mm512_abs_ps(a.v)}; }
inline float sum(F a) { return _mm512_reduce_add_ps(a.v); }
inline float greatest(F a) { return _mm512_reduce_max_ps(a.v); }
inline F round(F a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT)}; }
inline F times_power_of_two(F a, F n) { return {_mm512_scalef_ps(a.v, n.v)}; }

// a where first <= lane < stop, otherwise b.
inline F within(int first, int stop, F a, F b) {
    stop = stop < 0 ? 0 : stop > 16 ? 16 : stop;
    first = first < 0 ? 0 : first > 16 ? 16 : first;
    uint32_t mask = ((1u << stop) - 1) & ~((1u << first) - 1);
    return {_mm512_mask_blend_ps(__mmask16(mask), b.v, a.v)};
}

inline I bits(const void* p) { return {_mm512_loadu_si512(p)}; }
inline I splat_pair(const void* p) {
    int32_t pair;
    std::memcpy(&pair, p, 4);
    return {_mm512_set1_epi32(pair)};
}
inline I no_bits() { return {_mm512_setzero_si512()}; }
inline I operator&(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I operator+(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I operator-(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
inline I words_minus(I a, I b) { return {_mm512_sub_epi16(a.v, b.v)}; }
inline I operator^(I a, I b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline I operator|(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
inline I splat_bits(uint32_t x) { return {_mm512_set1_epi32(int(x))}; }
template <int N> inline I words_right(I a) { return {_mm512_srli_epi16(a.v, N)}; }
template <int N> inline I ints_left(I a) { return {_mm512_slli_epi32(a.v, N)}; }
template <int N> inline I words_left(I a) { return {_mm512_slli_epi16(a.v, N)}; }
template <int N> inline I words_right_signed(I a) { return {_mm512_srai_epi16(a.v, N)}; }
inline F to_floats(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline I words_to_ints_low(I a) { return {_mm512_srai_epi32(_mm512_slli_epi32(a.v, 16), 16)}; }
inline I words_to_ints_high(I a) { return {_mm512_srai_epi32(a.v, 16)}; }
// Of pairs of bfloat16.
inline F half_low(I a) { return {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))}; }
inline F half_high(I a) {
    return {_mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(int(0xffff0000))))};
}

inline I dot_words(I total, I a, I b) {
#if defined(__AVX512VNNI__)
    return {_mm512_dpwssd_epi32(total.v, a.v, b.v)};
#else
    return {_mm512_add_epi32(total.v, _mm512_madd_epi16(a.v, b.v))};
#endif
}

#if defined(__AVX512VNNI__)
#define PAGETURN_DOT_BYTES
// Of four bytes a lane: those of a have no sign.
inline I dot_bytes(I total, I a, I b) { return {_mm512_dpbusd_epi32(total.v, a.v, b.v)}; }
inline I bytes_minus(I a, I b) { return {_mm512_sub_epi8(a.v, b.v)}; }
// Within each sixteen bytes, those at `order`.
inline I shuffle_bytes(I a, const uint8_t* order) {
    const __m128i sixteen = _mm_loadu_si128((const __m128i*)order);
    return {_mm512_shuffle_epi8(a.v, _mm512_broadcast_i32x4(sixteen))};
}
#endif

inline F dot_halves(F total, I a, I b) {
#if defined(__AVX512BF16__)
    return {_mm512_dpbf16_ps(total.v, (__m512bh)a.v, (__m512bh)b.v)};
#else
    const __m512i high = _mm512_set1_epi32(int(0xffff0000));
    __m512 low = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16)),
                                 _mm512_castsi512_ps(_mm512_slli_epi32(b.v, 16)), total.v);
    return {_mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a.v, high)),
                            _mm512_castsi512_ps(_mm512_and_si512(b.v, high)), low)};
#endif
}

// bfloat16 of each lane in its low half; the high half is zero.
inline I narrow(F a) {
#if defined(__AVX512BF16__)
    return {_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(a.v))};
#else
    __m512i x = _mm512_castps_si512(a.v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    x = _mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return {_mm512_srli_epi32(x, 16)};
#endif
}

inline void store_narrow(bf16* p, F a) {
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(narrow(a).v));
}
// Pairs (low, high) as bfloat16 in each lane.
inline I narrow_pair(F low, F high) {
    return {_mm512_or_si512(narrow(low).v, _mm512_slli_epi32(narrow(high).v, 16))};
}
inline void store_bits(void* p, I a) { _mm512_storeu_si512(p, a.v); }
inline F load_fp16(const fp16* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p))};
}
inline void store_fp16(fp16* p, F a) {
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline I to_ints(F a) { return {_mm512_cvtps_epi32(a.v)}; }
// Rounded integers as words: those of a, then those of b.
inline I to_words(F a, F b) {
    return {_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(to_ints(a).v)),
                               _mm512_cvtepi32_epi16(to_ints(b).v), 1)};
}
// Rounded integers of each lane as words.
inline void store_words(int16_t* p, F a) {
    _mm256_storeu_si256((__m256i*)p, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v)));
}

#else  // AVX2: two registers of eight

struct F {
    __m256 v[2];
};
struct I {
    __m256i v[2];
};
#define PT_F(expression) \
    F r; \
    for (int h = 0; h < 2; h++) r.v[h] = (expression); \
    return r;
#define PT_I(expression) \
    I r; \
    for (int h = 0; h < 2; h++) r.v[h] = (expression); \
    return r;

inline F zero() { PT_F(_mm256_setzero_ps()) }
inline F splat(float x) { PT_F(_mm256_set1_ps(x)) }
inline F load(const float* p) { PT_F(_mm256_loadu_ps(p + 8 * h)) }
inline void store(float* p, F a) {
    for (int h = 0; h < 2; h++) _mm256_storeu_ps(p + 8 * h, a.v[h]);
}
inline F operator+(F a, F b) { PT_F(_mm256_add_ps(a.v[h], b.v[h])) }
inline F operator-(F a, F b) { PT_F(_mm256_sub_ps(a.v[h], b.v[h])) }
inline F operator*(F a, F b) { PT_F(_mm256_mul_ps(a.v[h], b.v[h])) }
inline F operator/(F a, F b) { PT_F(_mm256_div_ps(a.v[h], b.v[h])) }
inline F fma(F a, F b, F c) { PT_F(_mm256_fmadd_ps(a.v[h], b.v[h], c.v[h])) }
inline F max(F a, F b) { PT_F(_mm256_max_ps(a.v[h], b.v[h])) }
inline F min(F a, F b) { PT_F(_mm256_min_ps(a.v[h], b.v[h])) }
inline F abs(F a) { PT_F(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v[h])) }
inline float sum(F a) {
    __m256 s = _mm256_add_ps(a.v[0], a.v[1]);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_shuffle_ps(q, q, 1)));
}
inline float greatest(F a) {
    __m256 s = _mm256_max_ps(a.v[0], a.v[1]);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_shuffle_ps(q, q, 1)));
}
inline F round(F a) { PT_F(_mm256_round_ps(a.v[h], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)) }
// For n down to -126; below that the result is zero.
inline F times_power_of_two(F a, F n) {
    F r;
    for (int h = 0; h < 2; h++) {
        __m256 kept = _mm256_max_ps(n.v[h], _mm256_set1_ps(-127.0f));
        __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(kept), _mm256_set1_epi32(127));
        r.v[h] = _mm256_mul_ps(a.v[h], _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
    }
    return r;
}
inline F within(int first, int stop, F a, F b) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    F r;
    for (int h = 0; h < 2; h++) {
        __m256i lane = _mm256_add_epi32(lanes, _mm256_set1_epi32(8 * h));
        __m256i in = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                                         _mm256_cmpgt_epi32(_mm256_set1_epi32(stop), lane));
        r.v[h] = _mm256_blendv_ps(b.v[h], a.v[h], _mm256_castsi256_ps(in));
    }
    return r;
}

inline I bits(const void* p) {
    PT_I(_mm256_loadu_si256((const __m256i*)((const char*)p + 32 * h)))
}
inline I splat_pair(const void* p) {
    int32_t pair;
    std::memcpy(&pair, p, 4);
    PT_I(_mm256_set1_epi32(pair))
}
inline I no_bits() { PT_I(_mm256_setzero_si256()) }
inline I operator&(I a, I b) { PT_I(_mm256_and_si256(a.v[h], b.v[h])) }
inline I operator+(I a, I b) { PT_I(_mm256_add_epi32(a.v[h], b.v[h])) }
inline I operator-(I a, I b) { PT_I(_mm256_sub_epi32(a.v[h], b.v[h])) }
inline I words_minus(I a, I b) { PT_I(_mm256_sub_epi16(a.v[h], b.v[h])) }
inline I operator|(I a, I b) { PT_I(_mm256_or_si256(a.v[h], b.v[h])) }
inline I splat_bits(uint32_t x) { PT_I(_mm256_set1_epi32(int(x))) }
template <int N> inline I words_right(I a) { PT_I(_mm256_srli_epi16(a.v[h], N)) }
template <int N> inline I ints_left(I a) { PT_I(_mm256_slli_epi32(a.v[h], N)) }
template <int N> inline I words_left(I a) { PT_I(_mm256_slli_epi16(a.v[h], N)) }
template <int N> inline I words_right_signed(I a) { PT_I(_mm256_srai_epi16(a.v[h], N)) }
inline F to_floats(I a) { PT_F(_mm256_cvtepi32_ps(a.v[h])) }
inline I words_to_ints_low(I a) {
    PT_I(_mm256_srai_epi32(_mm256_slli_epi32(a.v[h], 16), 16))
}
inline F half_low(I a) { PT_F(_mm256_castsi256_ps(_mm256_slli_epi32(a.v[h], 16))) }
inline F half_high(I a) {
    const __m256i high = _mm256_set1_epi32(int(0xffff0000));
    PT_F(_mm256_castsi256_ps(_mm256_and_si256(a.v[h], high)))
}
inline I words_to_ints_high(I a) { PT_I(_mm256_srai_epi32(a.v[h], 16)) }
inline I dot_words(I total, I a, I b) {
    PT_I(_mm256_add_epi32(total.v[h], _mm256_madd_epi16(a.v[h], b.v[h])))
}
inline F dot_halves(F total, I a, I b) {
    const __m256i high = _mm256_set1_epi32(int(0xffff0000));
    F r;
    for (int h = 0; h < 2; h++) {
        __m256 low = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_slli_epi32(a.v[h], 16)),
                                     _mm256_castsi256_ps(_mm256_slli_epi32(b.v[h], 16)),
                                     total.v[h]);
        r.v[h] = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_and_si256(a.v[h], high)),
                                 _mm256_castsi256_ps(_mm256_and_si256(b.v[h], high)), low);
    }
    return r;
}
inline I narrow(F a) {
    I r;
    for (int h = 0; h < 2; h++) {
        __m256i x = _mm256_castps_si256(a.v[h]);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
        x = _mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        r.v[h] = _mm256_srli_epi32(x, 16);
    }
    return r;
}
inline void store_low_words(void* p, I a) {
    __m256i packed = _mm256_packus_epi32(a.v[0], a.v[1]);
    _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(packed, 0xd8));
}
inline void store_narrow(bf16* p, F a) { store_low_words(p, narrow(a)); }
inline I narrow_pair(F low, F high) {
    I a = narrow(low), b = narrow(high);
    PT_I(_mm256_or_si256(a.v[h], _mm256_slli_epi32(b.v[h], 16)))
}
inline void store_bits(void* p, I a) {
    for (int h = 0; h < 2; h++) _mm256_storeu_si256((__m256i*)((char*)p + 32 * h), a.v[h]);
}
inline F load_fp16(const fp16* p) {
    PT_F(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8 * h))))
}
inline void store_fp16(fp16* p, F a) {
    for (int h = 0; h < 2; h++)
        _mm_storeu_si128((__m128i*)(p + 8 * h),
                         _mm256_cvtps_ph(a.v[h], _MM_FROUND_TO_NEAREST_INT));
}
inline I to_ints(F a) { PT_I(_mm256_cvtps_epi32(a.v[h])) }
inline I to_words(F a, F b) {
    I x = to_ints(a), y = to_ints(b);
    return {{_mm256_permute4x64_epi64(_mm256_packs_epi32(x.v[0], x.v[1]), 0xd8),
             _mm256_permute4x64_epi64(_mm256_packs_epi32(y.v[0], y.v[1]), 0xd8)}};
}
inline void store_words(int16_t* p, F a) {
    __m256i packed = _mm256_packs_epi32(_mm256_cvtps_epi32(a.v[0]), _mm256_cvtps_epi32(a.v[1]));
    _mm256_storeu_si256((__m256i*)p, _mm256_permute4x64_epi64(packed, 0xd8));
}
#undef PT_F
#undef PT_I

#endif

// 2 ** x for x <= 0. The fraction of x lies in [-1/2, 1/2]; its power is the Taylor polynomial of
// degree 6, with a relative error of 1.2e-7.
inline F exp2(F x) {
    x = max(x, splat(-126.0f));
    F whole = round(x), part = x - whole;
    F p = splat(1.5403530e-4f);
    p = fma(p, part, splat(1.3333558e-3f));
    p = fma(p, part, splat(9.6181291e-3f));
    p = fma(p, part, splat(5.5504109e-2f));
    p = fma(p, part, splat(2.4022651e-1f));
    p = fma(p, part, splat(6.9314718e-1f));
    p = fma(p, part, splat(1.0f));
    return times_power_of_two(p, whole);
}

// x * sigmoid(x), from e ** -|x| so that nothing overflows.
inline F silu(F x) {
    F e = exp2(abs(x) * splat(-1.44269504f));
    F s = splat(1.0f) / (splat(1.0f) + e);  // sigmoid(|x|)
    // sigmoid(-a) = e * sigmoid(a): taken for negative x without a branch.
    F positive = max(x, zero()), negative = x - positive;
    return positive * s + negative * (e * s);
}

}  // namespace pageturn
