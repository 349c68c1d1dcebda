// What the bytes themselves cost: a part of every request, so a small fraction of the bare loop.
#include <benchmark/benchmark.h>

#include <string>

#include "kvcore/wire/message.h"
#include "kvcore/wire/pickle.h"

namespace {

using kv::Message;
using kv::Value;

Message map_request(std::int64_t pages) {
  Value::List offsets;
  for (std::int64_t page = 0; page < pages; ++page) offsets.emplace_back(page << 21);
  return {{"cmd", "map_to_kv_tensors"}, {"offsets", Value(std::move(offsets))}, {"group_id", 0}};
}

void decode(benchmark::State& state) {
  const std::string body = kv::encode_pickle(map_request(state.range(0))).value();
  for (auto _ : state) benchmark::DoNotOptimize(kv::decode_pickle(body));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(body.size()));
}
BENCHMARK(decode)->Name("decode, map of n offsets")->Arg(1)->Arg(16)->Arg(1000)->Arg(100000);

void encode(benchmark::State& state) {
  const Message message = map_request(state.range(0));
  std::string body;
  for (auto _ : state) {
    body.clear();
    benchmark::DoNotOptimize(kv::append_pickle(message, body).ok());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(body.size()));
}
BENCHMARK(encode)->Name("encode, map of n offsets")->Arg(1)->Arg(16)->Arg(1000)->Arg(100000);

}  // namespace

BENCHMARK_MAIN();
