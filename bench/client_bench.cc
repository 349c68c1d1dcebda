// One small request to four ranks at once: Client::broadcast against bare sockets that send and
// read the same bytes. The ranks are bare loops for both, so that only the client's side differs.
// Flags: --windows=600 --window_ms=10, and Google Benchmark's.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/bare.h"
#include "bench/interleave.h"
#include "kvcore/base/clock.h"
#include "kvcore/wire/client.h"
#include "kvcore/wire/frame.h"
#include "kvcore/wire/pickle.h"

namespace {

using kv::Message;

void broadcast(benchmark::State& state, int ranks, const kv::bench::Windows& windows,
               std::string* line) {
  const Message request = {{"cmd", "kv_tensors_created"}, {"group_id", 0}};
  const Message reply = {{"status", "success"}, {"created", true}};
  const std::string ask = kv::encode_frame(kv::encode_pickle(request).value()).value();
  const std::string answer = kv::encode_frame(kv::encode_pickle(reply).value()).value();
  const kv::bench::Folder folder;
  std::vector<std::unique_ptr<kv::bench::BareServer>> servers;
  std::vector<std::string> paths;
  std::vector<kv::Peer> peers;
  for (int rank = 0; rank < ranks; ++rank) {
    paths.push_back(folder.file("w" + std::to_string(rank) + ".sock"));
    peers.push_back({rank, 0, paths.back()});
    servers.push_back(std::make_unique<kv::bench::BareServer>(paths.back(), ask, answer));
  }
  kv::RealClock clock;
  kv::Client client(clock);
  kv::bench::Comparison result;
  for (auto _ : state) {
    result = kv::bench::compare(
        windows, [&] { return kv::bench::bare_broadcast(paths, ask, answer.size()); },
        [&] {
          for (const auto& one : client.broadcast(peers, request)) {
            if (!one.ok()) return false;
          }
          return true;
        });
  }
  if (result.windows == 0) state.SkipWithError("an exchange failed");
  state.counters["ratio"] = result.ratio;
  state.counters["low"] = result.low;
  state.counters["high"] = result.high;
  state.counters["floor_us"] = result.floor_ns / 1e3;
  state.counters["kv_us"] = result.candidate_ns / 1e3;
  *line = kv::bench::sentence("broadcast to " + std::to_string(ranks), "bare sockets", result);
}

}  // namespace

int main(int argc, char** argv) {
  const kv::bench::Windows windows = kv::bench::parse_windows(&argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  std::string one, four;
  const auto run_one = [&](benchmark::State& state) { broadcast(state, 1, windows, &one); };
  const auto run_four = [&](benchmark::State& state) { broadcast(state, 4, windows, &four); };
  benchmark::RegisterBenchmark("broadcast to 1", run_one)
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("broadcast to 4", run_four)
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (!one.empty()) std::printf("%s\n", one.c_str());
  if (!four.empty()) std::printf("%s\n", four.c_str());
  return 0;
}
