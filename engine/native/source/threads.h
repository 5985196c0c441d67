// A team of threads that runs one function at a time, with barriers and shared counters inside.
//
// One function is a whole forward pass: some hundred phases of tens of microseconds, between which
// the threads spin for a while before they sleep. Phases hand out their work in small pieces, so
// that a thread that was put aside by the operating system delays the others by one piece only.

#pragma once

#include <immintrin.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace pageturn {

constexpr int SPINS = 1000;  // some tens of microseconds

class Team {
  public:
    explicit Team(int size) : size_(size) {
        try {
            for (int i = 1; i < size; i++) workers_.emplace_back([this] { work(); });
        } catch (...) {  // no more threads are to be had: those that began must not outlive us
            end();
            throw;
        }
    }
    ~Team() { end(); }
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
            // In the order of all: notify_all looks for sleepers, and must not do so before the new
            // round is seen by one that is about to sleep.
            round_.store(round + 1, std::memory_order_seq_cst);
            round_.notify_all();
            return;
        }
        for (int spins = 0; spins < SPINS; spins++) {
            if (round_.load(std::memory_order_acquire) != round) return;
            _mm_pause();
        }
        // Somebody was put aside by the operating system: a core that sleeps lets them go on.
        round_.wait(round, std::memory_order_acquire);
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

    // The same for pieces that lie side by side in memory: the thread of this number has a run of
    // them for itself, so that it reads on where it has read, and only the last quarter is shared.
    template <class Piece> void share_runs(int number, int count, const Piece& piece) {
        const int run = run_start(1, count);
        for (int i = number * run; i < (number + 1) * run; i++) piece(i);
        share(count - run * size_, [&](int i) { piece(run * size_ + i); });
    }
    int run_start(int number, int count) const { return number * (count * 3 / 4 / size_); }

  private:
    void end() {
        {
            std::lock_guard<std::mutex> hold(mutex_);
            ending_ = true;
        }
        wake_.notify_all();
        for (auto& worker : workers_) worker.join();
    }

    void work() {
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
