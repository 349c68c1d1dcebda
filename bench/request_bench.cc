// One request on a fresh connection: the Listener against a bare accept-and-answer loop of the same
// bytes, asked by the same raw client; on one core and on two. Flags: --windows=600 --window_ms=10,
// and Google Benchmark's.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/bare.h"
#include "bench/interleave.h"
#include "kvcore/base/clock.h"
#include "kvcore/listener/listener.h"
#include "kvcore/wire/frame.h"
#include "kvcore/wire/pickle.h"

namespace {

using kv::Message;
using kv::Value;

struct Case {
  const char* name;
  Message request, reply;
};

std::vector<Case> cases() {
  Value::List offsets;
  for (std::int64_t page = 0; page < 16; ++page) offsets.emplace_back(page << 21);
  return {{"small request",
           {{"cmd", "kv_tensors_created"}, {"group_id", 0}},
           {{"status", "success"}, {"created", true}}},
          {"map of 16 offsets",
           {{"cmd", "map_to_kv_tensors"}, {"offsets", offsets}, {"group_id", 0}},
           {{"status", "success"}, {"newly_mapped_offsets", offsets}}}};
}

std::string framed(const Message& message) {
  return kv::encode_frame(kv::encode_pickle(message).value()).value();
}

void request(benchmark::State& state, const Case& one, kv::bench::Place place,
             const kv::bench::Windows& windows, const std::string& name, std::string* line) {
  if (!kv::bench::run_servers_at(place)) {
    state.SkipWithError("needs a second core");
    return;
  }
  const kv::bench::Folder folder;
  const std::string ask = framed(one.request), answer = framed(one.reply);
  const std::string bare_path = folder.file("bare.sock"), kv_path = folder.file("d/w0.sock");
  const kv::bench::BareServer bare(bare_path, ask, answer);
  kv::RealClock clock;
  const auto listener = kv::Listener::start(
      {.socket_path = kv_path, .socket_root = folder.path(), .label = "bench"},
      [&one](const Message&) -> kv::Result<Message> { return one.reply; }, clock, {});
  if (!listener.ok() || !bare.listening()) {
    state.SkipWithError(listener.ok() ? "no bare server" : listener.error().to_string().c_str());
    return;
  }
  kv::bench::run_client_at(place);
  kv::bench::Comparison result;
  for (auto _ : state) {
    result = kv::bench::compare(
        windows, [&] { return kv::bench::bare_exchange(bare_path, ask, answer.size()); },
        [&] { return kv::bench::bare_exchange(kv_path, ask, answer.size()); });
  }
  if (result.windows == 0) state.SkipWithError("an exchange failed");
  state.counters["ratio"] = result.ratio;
  state.counters["low"] = result.low;
  state.counters["high"] = result.high;
  state.counters["floor_us"] = result.floor_ns / 1e3;
  state.counters["kv_us"] = result.candidate_ns / 1e3;
  *line = kv::bench::sentence(name, "the bare loop", result);
}

}  // namespace

int main(int argc, char** argv) {
  const kv::bench::Windows windows = kv::bench::parse_windows(&argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  std::vector<std::string> lines(2 * cases().size());
  std::size_t next = 0;
  for (const auto place : {kv::bench::Place::kApart, kv::bench::Place::kTogether}) {
    for (const Case& one : cases()) {
      const bool apart = place == kv::bench::Place::kApart;
      const std::string name = std::string(one.name) + (apart ? ", two cores" : ", one core");
      std::string* line = &lines[next++];
      const auto run = [=](benchmark::State& state) {
        request(state, one, place, windows, name, line);
      };
      benchmark::RegisterBenchmark(name.c_str(), run)->Iterations(1)->Unit(benchmark::kMillisecond);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  for (const std::string& line : lines) {
    if (!line.empty()) std::printf("%s\n", line.c_str());
  }
  return 0;
}
