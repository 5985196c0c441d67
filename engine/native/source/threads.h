// A team of threads that runs one function at a time, with barriers and shared counters inside.
//
// One function is a whole forward pass: some hundred phases of tens of microseconds, between which
// the threads spin. Phases hand out their work in small pieces, so that a thread that was put aside
// by the operating system delays the others by one piece only.

#pragma once

#include <immintrin.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pageturn {

class Team {
  public:
    explicit Team(int size) : size_(size) {
        for (int i = 1; i < size; i++) workers_.emplace_back([this, i] { work(i); });
    }
    ~Team() {
        {
            std::lock_guard<std::mutex> hold(mutex_);
            ending_ = true;
        }
        wake_.notify_all();
        for (auto& worker : workers_) worker.join();
    }
    int size() const { return size_; }

    // Run `job` once in every thread, the caller's included.
    void run(const std::function<void()>& job) {
        {
            std::lock_guard<std::mutex> hold(mutex_);
            job_ = &job;
            next_.store(0);
            runs_++;
        }
        wake_.notify_all();
        job();
        barrier();
    }

    // Wait until all threads are here. The next phase's counter starts from 0.
    void barrier() {
        const unsigned round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            next_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; round_.load(std::memory_order_acquire) == round; spins++) {
            if (spins < 4000) _mm_pause();
            else sched_yield();
        }
    }

    // Pieces 0 .. count - 1, each to one thread; ends with a barrier.
    template <class Piece> void share(int count, const Piece& piece) {
        if (size_ == 1) {
            for (int i = 0; i < count; i++) piece(i);
            return;
        }
        for (int i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < count;) piece(i);
        barrier();
    }

  private:
    void work(int) {
        unsigned long seen = 0;
        for (;;) {
            const std::function<void()>* job;
            {
                std::unique_lock<std::mutex> hold(mutex_);
                wake_.wait(hold, [&] { return ending_ || runs_ != seen; });
                if (ending_) return;
                seen = runs_;
                job = job_;
            }
            (*job)();
            barrier();
        }
    }

    const int size_;
    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable wake_;
    const std::function<void()>* job_ = nullptr;
    unsigned long runs_ = 0;
    bool ending_ = false;
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
    alignas(64) std::atomic<int> next_{0};
};

}  // namespace pageturn
