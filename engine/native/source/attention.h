// Attention that reads keys and values where they lie: in pages (pages.h).
//
// The query heads that share a KV head are rows of one problem. It is solved in one pass over the
// keys with a running maximum and sum (Milakov & Gimelshein, 2018; Dao et al., "FlashAttention",
// 2022): blocks of 64 keys stay in the first-level cache while up to 48 query rows pass over them.
//
// Coded pages are multiplied as they are by a few queries (codes.h); for many, a block is decoded
// once. Where rows were rotated before they were coded, queries are rotated to meet the keys, and
// the mixed values have a sum of their own, which is rotated back once at the end.

#pragma once

#include "codes.h"

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
    float* mixed;   // [queries, head_dim]
    float* turned;  // the same of values that were rotated; null where none were
};

// The query rows of a task.
struct Queries {
    const bf16* plain;   // [queries, head_dim]
    const bf16* turned;  // as decoded keys want them
    Words words;         // as coded keys want them, where `few`
    bool few;
};

// Of a block, the runs `which`.
template <int M, int N>
inline void mix(const Block& block, unsigned which, int head_dim, int d, const bf16* weights,
                const float* decay, float* mixed) {
    F sums[M][N];
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++)
            sums[m][n] = load(mixed + size_t(m) * head_dim + d + n * LANES) * splat(decay[m]);
    for (int k = 0; k < block.count; k += LANES) {
        if (!(which >> k / LANES & 1)) continue;
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

template <int M>
inline void mix(const Block& block, unsigned which, int head_dim, const bf16* weights,
                const float* decay, float* mixed) {
    int d = 0;
    for (; d + 4 * LANES <= head_dim; d += 4 * LANES)
        mix<M, 4>(block, which, head_dim, d, weights, decay, mixed);
    for (; d < head_dim; d += LANES) mix<M, 1>(block, which, head_dim, d, weights, decay, mixed);
}

// Scores of M queries and N runs, all in bfloat16.
template <int M, int N>
inline void score(const Run* run, int head_dim, const bf16* queries, F (*scores)[RUNS]) {
    F sums[M][N];
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) sums[m][n] = zero();
    for (int i = 0; i < head_dim / 2; i++) {
        I key[N];
        for (int n = 0; n < N; n++) key[n] = bits(run[n].keys + i * run[n].key_step);
#pragma GCC unroll 6
        for (int m = 0; m < M; m++) {
            const I pair = splat_pair(queries + size_t(m) * head_dim + 2 * i);
            for (int n = 0; n < N; n++) sums[m][n] = dot_halves(sums[m][n], key[n], pair);
        }
    }
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) scores[m][n] = sums[m][n];
}

// Sends for the runs of the `next` block, if there is one, between its own: all at once they would
// hold up the work until the last one is on its way.
template <int M>
inline void score_mixed(const Block& block, int key_kind, int head_dim, const Queries& q, int at,
                        F (*scores)[RUNS], const Sequence& s, const Block* next) {
    for (int m = 0; m < M; m++)
        for (int n = block.runs(); n < RUNS; n++) scores[m][n] = zero();
    for (int n = 0; n < block.runs(); n++) {
        const Run& run = block.run[n];
        if (next && n < next->runs()) s.fetch_run(next->run[n]);
        if (run.form == Form::CODES) {
            F some[M];
            if (key_kind == INT4) score_codes<INT4, M>(run, head_dim, q.words, at, some);
            else score_codes<INT8, M>(run, head_dim, q.words, at, some);
            for (int m = 0; m < M; m++) scores[m][n] = some[m];
        } else {
            const bf16* rows = run.form == Form::PLAIN ? q.plain : q.turned;
            F some[M][RUNS];
            score<M, 1>(&run, head_dim, rows + size_t(at) * head_dim, some);
            for (int m = 0; m < M; m++) scores[m][n] = some[m][0];
        }
    }
}

// M query rows (from row `at` on) over a block of keys.
template <int M>
inline void attend_tile(const Block& block, const Sequence& s, const Block* next, const Queries& q,
                        int at, int window, float scale, Running& run) {
    const Pool& pool = s.pool;
    const int head_dim = s.head_dim;
    const int first = block.first, keys = block.count;
    const unsigned all = (1u << block.runs()) - 1, plain = block.of(Form::PLAIN);
    const unsigned decoded = block.of(Form::DECODED), coded = block.of(Form::CODES);
    F scores[M][RUNS];
    if (plain == all || decoded == all)
        score<M, RUNS>(block.run, head_dim, (plain ? q.plain : q.turned) + size_t(at) * head_dim,
                       scores);
    else
        score_mixed<M>(block, pool.kind[OF_KEYS], head_dim, q, at, scores, s, next);
    float exact[M * KEYS];
    bf16 weights[M * KEYS];
    float powers[LANES] = {};  // of each row: what earlier sums fade by, its largest weight here
    float *decay = powers, *peak = powers + LANES / 2;
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
        peak[m] = (largest - run.most[at + m]) * scale;
    }
    store(powers, exp2(load(powers)));
    for (int m = 0; m < M; m++) {
        F total = load(run.total[at + m]) * splat(decay[m]);
        const F shift = splat(-run.most[at + m] * scale);
        for (int n = 0; n < RUNS; n++) {
            const F weight = exp2(fma(scores[m][n], splat(scale), shift));
            total = total + weight;
            if (coded) store(exact + m * KEYS + n * LANES, weight);
            if (coded != all) store_narrow(weights + m * KEYS + n * LANES, weight);
        }
        store(run.total[at + m], total);
    }
    float *mixed = run.mixed + size_t(at) * head_dim, *turned = run.turned + size_t(at) * head_dim;
    float same[M];
    for (float& one : same) one = 1;
    switch (pool.kind[OF_VALUES]) {
        case INT4:
            mix<M>(block, plain, head_dim, weights, decay, mixed);
            if (coded) mix_codes<INT4, M>(block, head_dim, exact, peak, decay, turned);
            else if (run.turned) mix<M>(block, decoded, head_dim, weights, decay, turned);
            break;
        case INT8:
            if (coded != all) mix<M>(block, plain | decoded, head_dim, weights, decay, mixed);
            if (coded)
                mix_codes<INT8, M>(block, head_dim, exact, peak, coded == all ? decay : same,
                                   mixed);
            break;
        default:
            mix<M>(block, plain | decoded, head_dim, weights, decay, mixed);
    }
}

// A block of query rows over keys start .. stop - 1; `start` is a multiple of 64.
// `space` takes a decoded block.
inline void attend(const Sequence& s, const Queries& q, int count, int start, int stop, int window,
                   float scale, bf16* space, Running& run) {
    const int d = s.head_dim;
    for (int m = 0; m < count; m++) {
        run.most[m] = LOWEST;
        store(run.total[m], zero());
        std::memset(run.mixed + size_t(m) * d, 0, sizeof(float) * d);
        if (run.turned) std::memset(run.turned + size_t(m) * d, 0, sizeof(float) * d);
    }
    Block blocks[2] = {s.block(start, stop)};
    for (int first = start, turn = 0; first < stop; first += KEYS, turn ^= 1) {
        Block& block = blocks[turn];
        // Pages lie anywhere: the next block is sent for while this one is worked on. Where there
        // are many rows, the first of their tasks brings the keys into the cache for all.
        const Block* next = nullptr;
        if (first + KEYS < stop) {
            next = &(blocks[turn ^ 1] = s.block(first + KEYS, stop));
            if (count > FEW) next = nullptr;
            else if (!q.few || block.of(Form::CODES) == 0) s.fetch_block(*next), next = nullptr;
        }
        if (!q.few && block.of(Form::CODES)) decode(block, s.pool, d, space);
        for (int at = 0; at < count; at += QUERY_TILE) {
            const int m = count - at < QUERY_TILE ? count - at : QUERY_TILE;
            int last = 0;
            for (int i = 0; i < m; i++)
                last = run.position[at + i] > last ? run.position[at + i] : last;
            if (last < first) continue;  // all of these keys lie after all of these rows
            const Block* ahead = at ? nullptr : next;
            switch (m) {
                case 1: attend_tile<1>(block, s, ahead, q, at, window, scale, run); break;
                case 2: attend_tile<2>(block, s, ahead, q, at, window, scale, run); break;
#if defined(__AVX512F__)
                case 3: attend_tile<3>(block, s, ahead, q, at, window, scale, run); break;
                case 4: attend_tile<4>(block, s, ahead, q, at, window, scale, run); break;
                case 5: attend_tile<5>(block, s, ahead, q, at, window, scale, run); break;
                default: attend_tile<6>(block, s, ahead, q, at, window, scale, run);
#endif
            }
        }
    }
}

}  // namespace pageturn
