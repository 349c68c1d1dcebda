#include "kvcore/driver/cuda_driver.h"

#include <dlfcn.h>

#include <map>
#include <memory>
#include <utility>

#include "kvcore/base/thread_annotations.h"

namespace kv {
namespace {

struct Tables {
  Mutex mutex;
  std::map<std::string, std::unique_ptr<const CudaDriver>, std::less<>> by_path
      KV_GUARDED_BY(mutex);
};

// Never destroyed: a table may be in use while static destructors run.
Tables& tables() {
  static Tables* const all = new Tables;
  return *all;
}

// dlerror() keeps its text per thread here; POSIX alone does not promise that.
std::string loader_error() {
  const char* text = ::dlerror();  // NOLINT(concurrency-mt-unsafe)
  return text != nullptr ? text : "the loader gave no reason";
}

template <typename Function>
bool bind(void* library, const char* symbol, Function** slot) {
  *slot = reinterpret_cast<Function*>(::dlsym(library, symbol));
  return *slot != nullptr;
}

}  // namespace

Result<const CudaDriver*> load_cuda_driver(const std::string& path) {
  constexpr const char* kOperation = "cuda_driver.load";
  if (path.empty()) {
    return Status::error(Code::kInvalidArgument, kOperation, path, 0,
                         "the path of the driver library is empty");
  }
  Tables& all = tables();
  const MutexLock lock(all.mutex);
  if (const auto known = all.by_path.find(path); known != all.by_path.end()) {
    return known->second.get();
  }
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::error(Code::kNotFound, kOperation, path, 0, loader_error());
  }
  auto table = std::make_unique<CudaDriver>();
#define KV_BIND_CALL_(member, name, symbol, parameters)        \
  if (!bind(library, symbol, &table->member)) {                \
    return Status::error(Code::kNotFound, kOperation, path, 0, \
                         "the library has no symbol " symbol   \
                         ": not a "                            \
                         "CUDA driver, or too old");           \
  }
  KV_CUDA_CALLS(KV_BIND_CALL_)
#undef KV_BIND_CALL_
  return all.by_path.emplace(path, std::move(table)).first->second.get();
}

std::string cuda_result_name(const CudaDriver& driver, cuda::Result result) {
  const char* name = nullptr;
  if (driver.get_error_name(result, &name) != cuda::kSuccess || name == nullptr) {
    return "unknown CUresult";
  }
  return name;
}

}  // namespace kv
