// Attention that reads keys and values where they lie: in pages (pages.h).
//
// The query heads that share a KV head are rows of one problem. It is solved in one pass over the
// keys with a running maximum and sum (Milakov & Gimelshein, 2018; Dao et al., "FlashAttention",
// 2022): blocks of 64 keys stay in the first-level cache while up to 48 query rows pass over them.

#pragma once

#include "pages.h"

namespace pageturn {

constexpr int QUERIES = 48; // query rows in a block
constexpr int SPLIT = 256;  // keys in a part, where few queries look at many keys
#if defined(__AVX512F__)
constexpr int QUERY_TILE = 6;  // query rows whose scores stay in registers
#else
constexpr int QUERY_TILE = 2;
#endif
constexpr float HIDDEN = -1e30f, LOWEST = -1e29f;  // a masked score; where a maximum begins

// Running softmax of up to 48 query rows.
struct Running {
    int32_t position[QUERIES];
    float most[QUERIES];
    float total[QUERIES][LANES];
    float* mixed;  // [queries, head_dim]
};

template <int M, int N>
inline void mix(const Block& block, int head_dim, int d, const bf16* weights, const float* decay,
                float* mixed) {
    F sums[M][N];
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++)
            sums[m][n] = load(mixed + size_t(m) * head_dim + d + n * LANES) * splat(decay[m]);
    for (int k = 0; k < block.count; k += LANES) {
        const bf16* values = block.run[k / LANES].values + 2 * d;
        const int left = block.count - k;
        const int pairs = (left < LANES ? left : LANES) / 2;
        for (int j = 0; j < pairs; j++, values += 2 * head_dim) {
            I pair[N];
            for (int n = 0; n < N; n++) pair[n] = bits(values + n * 2 * LANES);
#pragma GCC unroll 6
            for (int m = 0; m < M; m++) {
                const I weight = splat_pair(weights + m * KEYS + k + 2 * j);
                for (int n = 0; n < N; n++) sums[m][n] = dot_halves(sums[m][n], pair[n], weight);
            }
        }
        if (left < LANES && left % 2) {  // the last key's partner was never written
            const I mine = splat_bits(0x0000ffff);
            for (int m = 0; m < M; m++) {
                const I weight = splat_pair(weights + m * KEYS + k + 2 * pairs) & mine;
                for (int n = 0; n < N; n++)
                    sums[m][n] =
                        dot_halves(sums[m][n], bits(values + n * 2 * LANES) & mine, weight);
            }
        }
    }
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++)
            store(mixed + size_t(m) * head_dim + d + n * LANES, sums[m][n]);
}

// M query rows (from row `at` on) over a block of keys.
template <int M>
inline void attend_tile(const Block& block, int head_dim, const bf16* queries, int at, int window,
                        float scale, Running& run) {
    const int first = block.first, keys = block.count;
    F scores[M][RUNS];
    for (int m = 0; m < M; m++)
        for (int n = 0; n < RUNS; n++) scores[m][n] = zero();
    const bf16* row = queries + size_t(at) * head_dim;
    for (int i = 0; i < head_dim / 2; i++) {
        I key[RUNS];
        for (int n = 0; n < RUNS; n++)
            key[n] = bits(block.run[n].keys + i * block.run[n].key_step);
#pragma GCC unroll 6
        for (int m = 0; m < M; m++) {
            const I pair = splat_pair(row + size_t(m) * head_dim + 2 * i);
            for (int n = 0; n < RUNS; n++) scores[m][n] = dot_halves(scores[m][n], key[n], pair);
        }
    }
    bf16 weights[M * KEYS];
    float decay[LANES] = {};
    for (int m = 0; m < M; m++) {
        const int position = run.position[at + m];
        const int seen_from = window ? position - window + 1 - first : 0;
        const int seen_to = position + 1 - first < keys ? position + 1 - first : keys;
        if (seen_to < KEYS || seen_from > 0)
            for (int n = 0; n < RUNS; n++)
                scores[m][n] = within(seen_from - n * LANES, seen_to - n * LANES, scores[m][n],
                                      splat(HIDDEN));
        const float largest = greatest(max(max(scores[m][0], scores[m][1]),
                                           max(scores[m][2], scores[m][3])));
        const float before = run.most[at + m];
        run.most[at + m] = largest > before ? largest : before;
        decay[m] = (before - run.most[at + m]) * scale;
    }
    store(decay, exp2(load(decay)));
    for (int m = 0; m < M; m++) {
        F total = load(run.total[at + m]) * splat(decay[m]);
        const F shift = splat(-run.most[at + m] * scale);
        for (int n = 0; n < RUNS; n++) {
            const F weight = exp2(fma(scores[m][n], splat(scale), shift));
            total = total + weight;
            store_narrow(weights + m * KEYS + n * LANES, weight);
        }
        store(run.total[at + m], total);
    }
    float* mixed = run.mixed + size_t(at) * head_dim;
    int d = 0;
    for (; d + 4 * LANES <= head_dim; d += 4 * LANES)
        mix<M, 4>(block, head_dim, d, weights, decay, mixed);
    for (; d < head_dim; d += LANES) mix<M, 1>(block, head_dim, d, weights, decay, mixed);
}

// A block of query rows over keys start .. stop - 1; `start` is a multiple of 64.
inline void attend(const Sequence& s, const bf16* queries, int count, int start, int stop,
                   int window, float scale, Running& run) {
    const int d = s.head_dim;
    for (int m = 0; m < count; m++) {
        run.most[m] = LOWEST;
        store(run.total[m], zero());
        std::memset(run.mixed + size_t(m) * d, 0, sizeof(float) * d);
    }
    for (int first = start; first < stop; first += KEYS) {
        const Block block = s.block(first, stop);
        // Pages lie anywhere: the next block is sent for while this one is worked on.
        s.fetch_block(first + KEYS, stop);
        for (int at = 0; at < count; at += QUERY_TILE) {
            const int m = count - at < QUERY_TILE ? count - at : QUERY_TILE;
            int last = 0;
            for (int i = 0; i < m; i++)
                last = run.position[at + i] > last ? run.position[at + i] : last;
            if (last < first) continue;  // all of these keys lie after all of these rows
            switch (m) {
                case 1: attend_tile<1>(block, d, queries, at, window, scale, run); break;
                case 2: attend_tile<2>(block, d, queries, at, window, scale, run); break;
#if defined(__AVX512F__)
                case 3: attend_tile<3>(block, d, queries, at, window, scale, run); break;
                case 4: attend_tile<4>(block, d, queries, at, window, scale, run); break;
                case 5: attend_tile<5>(block, d, queries, at, window, scale, run); break;
                default: attend_tile<6>(block, d, queries, at, window, scale, run);
#endif
            }
        }
    }
}

}  // namespace pageturn
