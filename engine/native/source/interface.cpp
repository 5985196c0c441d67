// What the Python side (executor.py) calls.

#include "decoder.h"

namespace {
template <class Job> int tried(const Job& job) {
    try {
        job();
        return 0;
    } catch (...) {  // no exception may cross into C
        return 1;
    }
}
}  // namespace

extern "C" {

void* pageturn_open(const pageturn::Model* model, int threads) {
    try {
        return new pageturn::Decoder(*model, threads);
    } catch (...) {
        return nullptr;
    }
}

void pageturn_close(void* decoder) { delete static_cast<pageturn::Decoder*>(decoder); }

// The others give 0, or 1 when there was not enough memory.
int pageturn_forward(void* decoder, const pageturn::Pool* pool, const pageturn::Step* step) {
    return tried([&] { static_cast<pageturn::Decoder*>(decoder)->forward(*pool, *step); });
}

// Bytes of workspace for steps of so many rows, or 0.
size_t pageturn_workspace(void* decoder, int rows) {
    size_t bytes = 0;
    tried([&] { bytes = static_cast<pageturn::Decoder*>(decoder)->workspace(rows); });
    return bytes;
}

int pageturn_embed(void* decoder, const int32_t* tokens, int count, float* out) {
    return tried([&] { static_cast<pageturn::Decoder*>(decoder)->embed(tokens, count, out); });
}

int pageturn_layer(void* decoder, int layer, float* x, const pageturn::Pool* pool,
                   const pageturn::Step* step) {
    return tried([&] {
        static_cast<pageturn::Decoder*>(decoder)->run_layer(layer, x, *pool, *step);
    });
}

int pageturn_encode(void* decoder, const pageturn::Pool* pool, int layers, const int64_t* pages,
                    int count, uint8_t* out) {
    return tried([&] {
        static_cast<pageturn::Decoder*>(decoder)->encode(*pool, layers, pages, count, out);
    });
}
}
