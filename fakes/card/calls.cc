#include "fakes/card/calls.h"

#include <cstddef>

namespace kv::card {
namespace {

kvdrill_site sites[] = {
#define KVCARD_SITE_(name) {"driver." #name, KVDRILL_FAULT, 0, nullptr, nullptr},
    KVCARD_CALLS(KVCARD_SITE_)
#undef KVCARD_SITE_
};

// When the library is loaded: the drill then knows the moments before the first call.
__attribute__((constructor)) void make_sites_known() {
  for (std::size_t index = 0; index + 1 < sizeof sites / sizeof sites[0]; ++index) {
    sites[index].next = &sites[index + 1];
  }
  kvdrill_add_sites(&sites[0]);
}

}  // namespace

kvdrill_site* site_of(Call call) {
  return &sites[static_cast<unsigned>(call)];
}

}  // namespace kv::card
