#include "fakes/card/store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

namespace kv::card {
namespace {

bool failed(const std::string& what, std::string* error) {
  *error = what + ": " + std::generic_category().message(errno);
  return false;
}

}  // namespace

bool Store::open(const std::string& directory, std::string* error) {
  if (!directory.empty() && ::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return failed("KVDRILL_CARD: mkdir " + directory, error);
  }
  const struct {
    const char* name;
    UniqueFd* fd;
  } files[] = {
      {"ledger", &ledger}, {"memory", &memory}, {"owners", &owners}, {"exports", &exports}};
  for (const auto& file : files) {
    const std::string path = directory + "/" + file.name;
    file.fd->reset(directory.empty()
                       ? ::memfd_create(("kvcard " + std::string(file.name)).c_str(), MFD_CLOEXEC)
                       : ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (file.fd->get() < 0) return failed("open " + path, error);
  }
  return true;
}

}  // namespace kv::card
