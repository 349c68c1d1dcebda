// The card's configuration, read from the environment in this one place.
//
// Threads: any. Ownership: values.
#ifndef FAKES_CARD_CONFIG_H_
#define FAKES_CARD_CONFIG_H_

#include <cstdint>
#include <string>

namespace kv::card {

inline constexpr int kMaxDevices = 16;

struct Config {
  std::string directory;      // KVDRILL_CARD: where the card's state lies; empty: a card of its own
  std::string process;        // KVDRILL_PROCESS: the name of this process in the scenario
  std::uint32_t devices = 1;  // KVDRILL_CARD_DEVICES, 0 to kMaxDevices
  std::uint64_t device_bytes = std::uint64_t{1} << 30;  // KVDRILL_CARD_BYTES, of each device
};

// False: a value is not usable; `error` says which, what it was and what was expected.
bool read_config(Config* config, std::string* error);

}  // namespace kv::card

#endif  // FAKES_CARD_CONFIG_H_
