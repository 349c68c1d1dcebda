// Work in flight: what runs after what, who waits for whom, and what dies with what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "fakes/card/testing.h"

namespace kv::card {
namespace {

constexpr unsigned kBlocking = 0;

// A process with two accessible pages and a stream.
struct Bench {
  Bench(const Driver& the_driver, unsigned flags) : driver(the_driver) {
    driver.start();
    base = driver.reserve(4);
    driver.page_at(base);
    driver.page_at(base + kPageSize);
    must(driver.cuStreamCreate(&stream, flags), "cuStreamCreate");
  }
  char byte_at(CUdeviceptr address) const {
    char byte = 0;
    EXPECT_EQ(driver.cuMemcpyDtoH(&byte, address, 1), CUDA_SUCCESS);
    return byte;
  }
  void hold(CUstream which, CUdeviceptr address = 0, std::size_t size = 0) const {
    EXPECT_EQ(driver.kvcardHoldStream(which, address, size), 0u);
    EXPECT_EQ(driver.kvcardAwaitHold(which), 0u);
  }

  const Driver& driver;
  CUdeviceptr base = 0;
  CUstream stream = nullptr;
};

void in_a_process(unsigned flags, const std::function<void(Bench&)>& body) {
  const CardFolder card;
  Process process([&](const Driver& driver, const Partner&) {
    Bench bench(driver, flags);
    body(bench);
  });
  EXPECT_EQ(process.end(), "exit 0");
}

// Runs `call` on a thread and tells whether it is still waiting when the stream is released.
CUresult result_after_release(Bench& bench, const std::function<CUresult()>& call) {
  CUcontext context = nullptr;
  EXPECT_EQ(bench.driver.cuCtxGetCurrent(&context), CUDA_SUCCESS);
  std::future<CUresult> result = std::async(std::launch::async, [&] {
    EXPECT_EQ(bench.driver.cuCtxSetCurrent(context), CUDA_SUCCESS);
    return call();
  });
  bench.driver.kvcardReleaseStream(bench.stream);
  return result.get();
}

TEST(Stream, AnIdleOneCopiesAtOnce) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    EXPECT_EQ(bench.driver.cuMemcpyHtoDAsync(bench.base, "a", 1, bench.stream), CUDA_SUCCESS);
    EXPECT_EQ(bench.driver.cuStreamQuery(bench.stream), CUDA_SUCCESS);
    EXPECT_EQ(bench.byte_at(bench.base), 'a');
  });
}

TEST(Stream, AHeldOneCopiesWhenItIsReleasedAndNotBefore) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    bench.hold(bench.stream);
    EXPECT_EQ(bench.driver.cuMemcpyHtoDAsync(bench.base, "a", 1, bench.stream), CUDA_SUCCESS);
    EXPECT_EQ(bench.driver.cuStreamQuery(bench.stream), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(bench.byte_at(bench.base), '\0');  // the default stream does not wait for this one
    EXPECT_EQ(
        result_after_release(bench, [&] { return bench.driver.cuStreamSynchronize(bench.stream); }),
        CUDA_SUCCESS);
    EXPECT_EQ(bench.byte_at(bench.base), 'a');
  });
}

TEST(Stream, TheDefaultOneKeepsInOrderWithBlockingOnes) {
  in_a_process(kBlocking, [](Bench& bench) {
    bench.hold(bench.stream);
    EXPECT_EQ(bench.driver.cuMemcpyHtoDAsync(bench.base, "a", 1, bench.stream), CUDA_SUCCESS);
    char seen = 0;
    EXPECT_EQ(result_after_release(bench,
                                   [&] { return bench.driver.cuMemcpyDtoH(&seen, bench.base, 1); }),
              CUDA_SUCCESS);
    EXPECT_EQ(seen, 'a');
    // And the other way round.
    bench.hold(nullptr);
    EXPECT_EQ(bench.driver.cuMemcpyHtoDAsync(bench.base, "b", 1, bench.stream), CUDA_SUCCESS);
    EXPECT_EQ(bench.driver.cuStreamQuery(bench.stream), CUDA_ERROR_NOT_READY);
    bench.driver.kvcardReleaseStream(nullptr);
    EXPECT_EQ(bench.driver.cuStreamSynchronize(bench.stream), CUDA_SUCCESS);
    EXPECT_EQ(bench.byte_at(bench.base), 'b');
  });
}

TEST(Stream, SynchronizingTheContextWaitsForEveryStream) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    bench.hold(bench.stream);
    EXPECT_EQ(bench.driver.cuMemcpyHtoDAsync(bench.base, "a", 1, bench.stream), CUDA_SUCCESS);
    EXPECT_EQ(result_after_release(bench, [&] { return bench.driver.cuCtxSynchronize(); }),
              CUDA_SUCCESS);
    EXPECT_EQ(bench.driver.cuStreamQuery(bench.stream), CUDA_SUCCESS);
  });
}

TEST(Stream, HostFunctionsRunInOrderAndOffTheCallersThread) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    struct Seen {
      std::vector<int> order;
      std::thread::id thread;
    } seen;
    const auto run = [](void* user) {
      auto* all = static_cast<Seen*>(user);
      all->order.push_back(static_cast<int>(all->order.size()));
      all->thread = std::this_thread::get_id();
    };
    for (int count = 0; count < 3; ++count) {
      EXPECT_EQ(bench.driver.cuLaunchHostFunc(bench.stream, run, &seen), CUDA_SUCCESS);
    }
    EXPECT_EQ(bench.driver.cuStreamSynchronize(bench.stream), CUDA_SUCCESS);
    EXPECT_THAT(seen.order, testing::ElementsAre(0, 1, 2));
    EXPECT_NE(seen.thread, std::this_thread::get_id());
  });
}

TEST(Stream, ADestroyedOneFinishesItsWork) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    std::promise<void> gate, done;
    struct Both {
      std::promise<void>&gate, &done;
    } both{gate, done};
    const auto run = [](void* user) {
      auto* promises = static_cast<Both*>(user);
      promises->gate.get_future().wait();
      promises->done.set_value();
    };
    EXPECT_EQ(bench.driver.cuLaunchHostFunc(bench.stream, run, &both), CUDA_SUCCESS);
    EXPECT_EQ(bench.driver.cuStreamDestroy(bench.stream), CUDA_SUCCESS);
    EXPECT_EQ(bench.driver.cuStreamQuery(bench.stream), CUDA_ERROR_INVALID_HANDLE);
    gate.set_value();
    done.get_future().wait();
    EXPECT_EQ(bench.driver.cuStreamDestroy(bench.stream), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(Stream, FreeingPlainMemoryWaitsForTheContextsWork) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    CUdeviceptr plain = 0;
    EXPECT_EQ(bench.driver.cuMemAlloc(&plain, kPageSize), CUDA_SUCCESS);
    struct Job {
      std::promise<void> gate;
      std::vector<char> bytes;
      std::atomic<bool> done{false};
    } job;
    const auto run = [](void* user) {
      auto* work = static_cast<Job*>(user);
      work->gate.get_future().wait();
      work->bytes.assign(std::size_t{64} << 20, 'x');  // so that it ends well after the gate
      work->done = true;
    };
    EXPECT_EQ(bench.driver.cuLaunchHostFunc(bench.stream, run, &job), CUDA_SUCCESS);
    job.gate.set_value();
    EXPECT_EQ(bench.driver.cuMemFree(plain), CUDA_SUCCESS);
    EXPECT_TRUE(job.done);
    EXPECT_EQ(bench.driver.cuMemFree(plain), CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(Event, IsReadyWhenWhatWasThereBeforeItIsDone) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    const Driver& driver = bench.driver;
    CUevent event = nullptr;
    EXPECT_EQ(driver.cuEventCreate(&event, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuEventQuery(event), CUDA_SUCCESS);  // never recorded
    bench.hold(bench.stream);
    EXPECT_EQ(driver.cuEventRecord(event, bench.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuEventQuery(event), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(result_after_release(bench, [&] { return driver.cuEventSynchronize(event); }),
              CUDA_SUCCESS);
    EXPECT_EQ(driver.cuEventQuery(event), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuEventDestroy(event), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  });
}

TEST(Event, MakesAnotherStreamWait) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    const Driver& driver = bench.driver;
    CUevent event = nullptr;
    CUstream other = nullptr;
    EXPECT_EQ(driver.cuEventCreate(&event, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    bench.hold(bench.stream);
    EXPECT_EQ(driver.cuEventRecord(event, bench.stream), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuMemcpyHtoDAsync(bench.base, "a", 1, other), CUDA_SUCCESS);
    EXPECT_EQ(driver.cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(result_after_release(bench, [&] { return driver.cuStreamSynchronize(other); }),
              CUDA_SUCCESS);
    EXPECT_EQ(bench.byte_at(bench.base), 'a');
  });
}

TEST(Unmap, OfAPageThatNoWorkUsesHarmsNobody) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    bench.hold(bench.stream, bench.base, kPageSize);
    EXPECT_EQ(bench.driver.cuMemUnmap(bench.base + kPageSize, kPageSize), CUDA_SUCCESS);
    EXPECT_EQ(
        result_after_release(bench, [&] { return bench.driver.cuStreamSynchronize(bench.stream); }),
        CUDA_SUCCESS);
  });
}

TEST(Unmap, UnderQueuedWorkKillsItWhenItsTurnComes) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    bench.hold(bench.stream);
    EXPECT_EQ(bench.driver.kvcardHoldStream(bench.stream, bench.base, kPageSize), 0u);
    EXPECT_EQ(bench.driver.cuMemUnmap(bench.base, kPageSize), CUDA_SUCCESS);
    EXPECT_EQ(bench.driver.cuStreamQuery(bench.stream), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(
        result_after_release(bench, [&] { return bench.driver.cuStreamSynchronize(bench.stream); }),
        CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST(Poison, EndsWithTheContextAndANewOneWorks) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    bench.hold(bench.stream, bench.base, kPageSize);
    EXPECT_EQ(bench.driver.cuMemUnmap(bench.base, kPageSize), CUDA_SUCCESS);
    EXPECT_EQ(bench.driver.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(bench.driver.cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
    EXPECT_EQ(bench.driver.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    bench.driver.start();
    EXPECT_EQ(bench.byte_at(bench.base + kPageSize), '\0');
    EXPECT_EQ(bench.driver.cuCtxSynchronize(), CUDA_SUCCESS);
  });
}

TEST(Poison, ReachesWhoWaitsForTheWork) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    bench.hold(bench.stream, bench.base, kPageSize);
    CUcontext context = nullptr;
    EXPECT_EQ(bench.driver.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    std::future<CUresult> waiting = std::async(std::launch::async, [&] {
      EXPECT_EQ(bench.driver.cuCtxSetCurrent(context), CUDA_SUCCESS);
      return bench.driver.cuStreamSynchronize(bench.stream);
    });
    EXPECT_EQ(bench.driver.cuMemUnmap(bench.base, kPageSize), CUDA_SUCCESS);
    EXPECT_EQ(waiting.get(), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

// Threads that copy between pages of their own, map and unmap others, and use streams, all at once.
TEST(Threads, WorkSideBySide) {
  in_a_process(CU_STREAM_NON_BLOCKING, [](Bench& bench) {
    const Driver& driver = bench.driver;
    CUcontext context = nullptr;
    EXPECT_EQ(driver.cuCtxGetCurrent(&context), CUDA_SUCCESS);
    std::vector<std::thread> threads;
    for (int index = 0; index < 4; ++index) {
      threads.emplace_back([&, index] {
        EXPECT_EQ(driver.cuCtxSetCurrent(context), CUDA_SUCCESS);
        CUstream stream = nullptr;
        EXPECT_EQ(driver.cuStreamCreate(&stream, index % 2), CUDA_SUCCESS);
        const CUdeviceptr base = driver.reserve(2);
        for (int round = 0; round < 20; ++round) {
          const auto first = driver.page_at(base), second = driver.page_at(base + kPageSize);
          const auto value = static_cast<char>('a' + index);
          EXPECT_EQ(driver.cuMemsetD8(base, static_cast<unsigned char>(value), 4096), CUDA_SUCCESS);
          EXPECT_EQ(driver.cuMemcpyDtoDAsync(base + kPageSize, base, 4096, stream), CUDA_SUCCESS);
          EXPECT_EQ(driver.cuLaunchHostFunc(
                        stream, [](void*) {}, nullptr),
                    CUDA_SUCCESS);
          EXPECT_EQ(driver.cuStreamSynchronize(stream), CUDA_SUCCESS);
          EXPECT_EQ(bench.byte_at(base + kPageSize + 4095), value);
          EXPECT_EQ(driver.cuMemUnmap(base, 2 * kPageSize), CUDA_SUCCESS);
          EXPECT_EQ(driver.cuMemRelease(first), CUDA_SUCCESS);
          EXPECT_EQ(driver.cuMemRelease(second), CUDA_SUCCESS);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(driver.cuCtxSynchronize(), CUDA_SUCCESS);
  });
}

}  // namespace
}  // namespace kv::card
