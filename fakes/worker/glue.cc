#include "fakes/worker/glue.h"

#include <cstddef>
#include <type_traits>

namespace kv::worker {
namespace {

static_assert(std::is_standard_layout_v<Site> && std::is_standard_layout_v<kvdrill_site>);
static_assert(sizeof(Site) == sizeof(kvdrill_site) && alignof(Site) == alignof(kvdrill_site));
static_assert(offsetof(Site, name) == offsetof(kvdrill_site, name));
static_assert(offsetof(Site, kind) == offsetof(kvdrill_site, kind));
static_assert(sizeof(Site::kind) == sizeof(kvdrill_site::kind));
static_assert(offsetof(Site, harness_id) == offsetof(kvdrill_site, harness_id));
static_assert(offsetof(Site, next) == offsetof(kvdrill_site, next));
static_assert(offsetof(Site, harness_data) == offsetof(kvdrill_site, harness_data));

static_assert(static_cast<std::uint32_t>(SiteKind::kPoint) == KVDRILL_POINT);
static_assert(static_cast<std::uint32_t>(SiteKind::kFault) == KVDRILL_FAULT);
static_assert(static_cast<std::uint32_t>(SiteKind::kStep) == KVDRILL_STEP);
static_assert(static_cast<std::uint32_t>(SiteKind::kNote) == KVDRILL_NOTE);

static_assert(kPretend == KVDRILL_PRETEND);

static_assert(kHookVersion == KVDRILL_CONTRACT_VERSION);
static_assert(sizeof(HookTable) == sizeof(kvdrill_hooks));
static_assert(offsetof(HookTable, version) == offsetof(kvdrill_hooks, version));
static_assert(offsetof(HookTable, point) == offsetof(kvdrill_hooks, point));
static_assert(offsetof(HookTable, fault) == offsetof(kvdrill_hooks, fault));
static_assert(offsetof(HookTable, step) == offsetof(kvdrill_hooks, step));
static_assert(offsetof(HookTable, done) == offsetof(kvdrill_hooks, done));
static_assert(offsetof(HookTable, note) == offsetof(kvdrill_hooks, note));

}  // namespace

// The only two places where one side's objects are taken for the other's. The functions differ in
// the type their first parameter points to, and in nothing that a call consists of.
kvdrill_site* contract_sites() {
  return reinterpret_cast<kvdrill_site*>(all_sites());
}

void install(const kvdrill_hooks* hooks) {
  install_hooks(reinterpret_cast<const HookTable*>(hooks));
}

}  // namespace kv::worker
