// Exported calls: looking up calls by name, as loaders that avoid dlsym do.
#include <dlfcn.h>

#include <cstdint>
#include <string>

#include "fakes/card/calls.h"
#include "fakes/card/cuda_abi.h"

namespace kv::card {
namespace {

constexpr int kFound = 0, kSymbolNotFound = 1;

// The newest version that the card has of a call; names come without a suffix.
void* newest(const std::string& name) {
  Dl_info here = {};
  if (::dladdr(reinterpret_cast<const void*>(&site_of), &here) == 0) return nullptr;
  void* library = ::dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* found = ::dlsym(library, (name + "_v2").c_str());
  if (found == nullptr) found = ::dlsym(library, name.c_str());
  ::dlclose(library);  // only the count that dlopen took: the library stays
  return found;
}

}  // namespace

KVCARD_API CUresult cuGetProcAddress_v2(const char* name, void** function, int /*version*/,
                                        std::uint64_t /*flags*/, int* status) {
  return call_any_time(Call::cuGetProcAddress, 0, [&] {
    if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *function = newest(name);
    if (status != nullptr) *status = *function != nullptr ? kFound : kSymbolNotFound;
    return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  });
}

}  // namespace kv::card
