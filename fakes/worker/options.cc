#include "fakes/worker/options.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>

namespace kv::worker {

bool parse_options(int argc, char** argv, Options* options, int* exit_code) {
  CLI::App app("kvworker: a fake worker process, a whole engine on kvcore that obeys a drill");
  RuntimeConfig& runtime = options->runtime;
  std::int64_t drain_ns = runtime.drain_limit.count();
  const std::map<std::string, std::int64_t> kTimes{
      {"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};

  app.add_option("--name", options->name, "of the process in the drill");
  app.add_option("--role", options->role, "its part in the engine")
      ->check(CLI::IsMember({"worker", "scheduler", "producer", "reader"}));
  app.add_option("--rank", runtime.rank, "tensor-parallel rank");
  app.add_option("--stage", runtime.stage, "pipeline stage");
  app.add_option("--device", runtime.device, "ordinal of its device");
  app.add_option("--ipc", runtime.ipc_name, "IPC name of the engine")->required();
  app.add_option("--socket-root", runtime.socket_root, "where the socket directory is made");
  app.add_option("--segment-root", options->segment_root, "where shared-memory segments are made");
  app.add_option("--driver", runtime.driver_path, "driver library: the real one, or the fake card");

  app.add_option("--layers", options->shape.layers, "tensors in group 0");
  app.add_option("--buffers", options->shape.buffers, "2: K and V halves; 1: a single buffer");
  app.add_option("--tensor-bytes", options->shape.tensor_bytes, "of address space per layer");
  app.add_option("--page-bytes", options->shape.page_bytes, "of one page");
  app.add_flag("--zero-page", options->shape.zero_page,
               "addresses without a page read zeros; without this, touching one is an error");
  app.add_option("--drain-limit", drain_ns, "of a stop, with its unit: 5s")
      ->transform(CLI::AsNumberWithUnit(kTimes, CLI::AsNumberWithUnit::UNIT_REQUIRED, "TIME"));
  app.add_option("--max-body", runtime.max_body, "bytes of a request");
  app.add_flag("!--no-listener", options->listener, "start without a listener");
  app.add_flag("!--no-tensors", options->tensors, "start without tensors");
  app.add_flag("!--driver-caches", options->framework_caches,
               "a producer's caches lie in the driver's memory, not in the framework's");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : 2;
    return false;
  }
  runtime.drain_limit = Nanos(drain_ns);
  if (options->role != "worker") options->listener = options->tensors = false;
  const Status valid = runtime.validate();
  if (!valid.ok()) {
    std::fprintf(stderr, "kvworker: %s\n", valid.to_string().c_str());
    *exit_code = 2;
    return false;
  }
  return true;
}

}  // namespace kv::worker
