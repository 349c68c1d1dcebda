// The language's page cannot rot: every example on it loads, and no word is without one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness/scenario/loader.h"
#include "harness/scenario/scenario_test_support.h"
#include "harness/scenario/toml_document.h"
#include "harness/steps/table.h"

namespace kv::drill {
namespace {

struct Example {
  int line = 0;  // of its first line on the page
  std::string text;
};

std::vector<Example> examples() {
  std::ifstream page(KVDRILL_SOURCE_DIR "/scenarios/README.md");
  EXPECT_TRUE(page) << "the page is missing";
  std::vector<Example> found;
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(page, line);) {
    ++number;
    if (line == "```toml") {
      inside = true;
      found.push_back({number + 1, ""});
    } else if (line.rfind("```", 0) == 0) {
      inside = false;
    } else if (inside) {
      found.back().text += line + "\n";
    }
  }
  return found;
}

// As the page says: a whole file, steps behind a start, or the rest of a file.
std::string whole_file(const Example& example) {
  if (example.text.rfind("name", 0) == 0) return example.text;
  const std::string head =
      "name = \"x\"\nabout = \"y\"\n[processes]\nworker = {role = \"worker\"}\n";
  if (example.text.rfind("{", 0) != 0) return head + example.text;
  return head + "[drill]\nsteps = [\n{start = \"worker\"},\n" + example.text + "]\n";
}

TEST(LanguageTest, EveryExampleOfThePageLoads) {
  const auto all = examples();
  ASSERT_GE(all.size(), 12u);
  for (const Example& example : all) {
    const auto scenario =
        load_scenario("README.md", whole_file(example), test_engine(), language());
    if (scenario) continue;
    for (const LoadError& error : scenario.error()) {
      ADD_FAILURE() << "in the example at line " << example.line
                    << " of scenarios/README.md: " << to_string(error);
    }
  }
}

void collect_keys(const Node& node, std::set<std::string>* keys) {
  for (const Node& item : node.list) collect_keys(item, keys);
  for (const Entry& entry : node.table) {
    keys->insert(entry.key);
    collect_keys(entry.value, keys);
  }
}

TEST(LanguageTest, EveryWordHasAnExample) {
  std::set<std::string> used;
  for (const Example& example : examples()) {
    const auto root = parse_toml(whole_file(example));
    ASSERT_TRUE(root) << example.text;
    collect_keys(*root, &used);
  }
  std::vector<std::string> words = language().words();
  for (const char* word :
       {"name",      "about",    "cases",        "params",      "processes",   "drill",
        "arm",       "matrix",   "prove",        "role",        "rank",        "stage",
        "device",    "ipc",      "arguments",    "environment", "steps",       "clock",
        "deadline",  "events",   "card",         "devices",     "bytes",       "waive",
        "check",     "reason",   "not_under",    "expect",      "set",         "skip",
        "fails",     "id",       "to",           "how",         "code",        "signal",
        "connect",   "refused",  "send",         "first",       "allow",       "send_rest",
        "request",   "reply",    "send_bytes",   "half_close",  "close",       "in",
        "as",        "hit",      "again",        "thread",      "key",         "times",
        "from",      "may_miss", "at",           "args",        "value",       "text",
        "is",        "at_least", "at_most",      "contents",    "socket",      "replace",
        "handles",   "mappings", "reservations", "limits",      "descriptors", "address_space",
        "file_size", "core",     "small_root",   "holds",       "others"}) {
    words.emplace_back(word);
  }
  for (const std::string& word : words) {
    EXPECT_EQ(used.count(word), 1u) << "no example in scenarios/README.md uses " << word;
  }
}

// Every word in back quotes of a cell.
std::vector<std::string> quoted_words(std::string_view cell) {
  std::vector<std::string> words;
  for (auto at = cell.find('`'); at != std::string_view::npos; at = cell.find('`', at)) {
    const auto end = cell.find('`', at + 1);
    if (end == std::string_view::npos) break;
    words.emplace_back(cell.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

TEST(LanguageTest, ThePageListsEveryStepWithItsPurpose) {
  std::string expected = "| step | what it does |\n| --- | --- |\n";
  for (const StepKind& kind : language().steps) {
    expected.append("| `").append(kind.word).append("` | ").append(kind.purpose).append(" |\n");
  }
  std::ostringstream page;
  page << std::ifstream(KVDRILL_SOURCE_DIR "/scenarios/README.md").rdbuf();
  EXPECT_THAT(page.str(), ::testing::HasSubstr(expected));
}

TEST(LanguageTest, TheTableOfCasesNamesDrillsTestsAndProofsThatThereAre) {
  namespace fs = std::filesystem;
  const fs::path root(KVDRILL_SOURCE_DIR);
  std::string scenarios;
  for (const auto& entry : fs::recursive_directory_iterator(root / "scenarios")) {
    if (entry.path().extension() != ".toml") continue;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    scenarios += text.str();
  }
  std::ifstream page(root / "scenarios/README.md");
  std::size_t rows = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| B") && !line.starts_with("| R")) continue;
    ++rows;
    const auto proofs = line.rfind(" | ");
    for (const std::string& word : quoted_words(line.substr(0, proofs))) {
      const bool path = word.find('/') != std::string::npos;
      const fs::path file = path ? root / word : root / "scenarios/memory" / (word + ".toml");
      EXPECT_TRUE(fs::exists(file)) << line << "\nno such drill or test: " << word;
    }
    for (const std::string& word : quoted_words(line.substr(proofs))) {
      EXPECT_NE(scenarios.find("\"" + word), std::string::npos)
          << line << "\nno proof leaves out " << word;
    }
  }
  EXPECT_EQ(rows, 27u) << "the cases that the drills of memory answer";
}

TEST(LanguageTest, TheMatrixExampleHasTheRunsThatThePageCounts) {
  for (const Example& example : examples()) {
    if (example.text.find("five runs") == std::string::npos) continue;
    EXPECT_EQ(loaded(example.text).drills.size(), 5u);
    return;
  }
  ADD_FAILURE() << "the example is gone";
}

}  // namespace
}  // namespace kv::drill
