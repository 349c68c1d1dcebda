// Which driver library a benchmark runs on: the fake card of this build, or the one that
// --driver=PATH names, such as the real libcuda.so.1.
//
// Threads: parse_driver() on the main thread, before any other starts: it sets the environment.
// Ownership: values.
#ifndef BENCH_DRIVER_FLAG_H_
#define BENCH_DRIVER_FLAG_H_

#include <string>

namespace kv::bench {

// Takes --driver=PATH off the arguments; the rest stays for Google Benchmark. The fake card is one
// of this process alone, with 1 GiB.
std::string parse_driver(int* argc, char** argv);

}  // namespace kv::bench

#endif  // BENCH_DRIVER_FLAG_H_
