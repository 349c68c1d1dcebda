// The protocol's table, request by request, on a real allocator over the model of device memory.
#include "kvcore/runtime/service.h"

#include <gmock/gmock.h>

#include "fakes/doubles/model_vmm.h"
#include "kvcore/wire/pickle.h"

namespace kv {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPage = ModelVmm::kPage;

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() : allocator_(make_kv_allocator(vmm_, nullptr)) {
    KvShape shape;
    shape.layers = 2;
    shape.tensor_bytes = 16 * kPage;
    shape.page_bytes = kPage;
    EXPECT_TRUE(allocator_->create_tensors(0, shape).ok());
  }
  Message ask(const Message& request) { return serve_request(*allocator_, request); }
  static Value offsets(std::initializer_list<std::int64_t> pages) {
    Value::List list;
    for (const std::int64_t page : pages) list.emplace_back(page * kPage);
    return list;
  }
  Message map(std::initializer_list<std::int64_t> pages) {
    return ask({{"cmd", "map_to_kv_tensors"}, {"offsets", offsets(pages)}, {"group_id", 0}});
  }
  Message prepare(std::initializer_list<std::int64_t> pages, const char* transaction,
                  Value commit = {}) {
    Message request{{"cmd", "prepare_unmap_from_kv_tensors"},
                    {"offsets", offsets(pages)},
                    {"transaction_id", transaction}};
    if (!commit.is_none()) request.emplace_back("commit", commit);
    return ask(request);
  }
  Message end(const char* cmd, const char* transaction) {
    return ask({{"cmd", cmd}, {"transaction_id", transaction}, {"group_id", 0}});
  }
  static std::string text(const Message& reply, const char* key) {
    return text_field(reply, key).value_or("(none)");
  }
  static Message success() { return {{"status", "success"}}; }

  ModelVmm vmm_;
  std::unique_ptr<KvAllocator> allocator_;
};

TEST_F(ServiceTest, SaysWhetherAGroupHasTensors) {
  EXPECT_EQ(ask({{"cmd", "kv_tensors_created"}}),
            (Message{{"status", "success"}, {"created", true}}));
  EXPECT_EQ(ask({{"cmd", "kv_tensors_created"}, {"group_id", 7}}),
            (Message{{"status", "success"}, {"created", false}}));
}

TEST_F(ServiceTest, MapsAndSaysWhatIsNew) {
  EXPECT_EQ(map({0, 2}),
            (Message{{"status", "success"}, {"newly_mapped_offsets", offsets({0, 2})}}));
  EXPECT_EQ(map({0, 1}), (Message{{"status", "success"}, {"newly_mapped_offsets", offsets({1})}}));
  EXPECT_EQ(map({}), (Message{{"status", "success"}, {"newly_mapped_offsets", Value::List{}}}));
}

TEST_F(ServiceTest, UnmapsWhatIsMapped) {
  map({0, 1});
  EXPECT_EQ(ask({{"cmd", "unmap_from_kv_tensors"}, {"offsets", offsets({0, 1})}}), success());
  EXPECT_TRUE(vmm_.mappings().empty());
  const Message again = ask({{"cmd", "unmap_from_kv_tensors"}, {"offsets", offsets({0})}});
  EXPECT_EQ(text(again, "status"), "error");
  EXPECT_EQ(text(again, "error_type"), "state_consistency");
}

TEST_F(ServiceTest, UnmapsInTwoHalves) {
  map({0, 1});
  EXPECT_EQ(prepare({0}, "t1"), (Message{{"status", "prepared"}}));
  EXPECT_EQ(prepare({0}, "t1"), (Message{{"status", "prepared"}}));  // its reply was lost
  EXPECT_EQ(end("commit_unmap_from_kv_tensors", "t1"), (Message{{"status", "committed"}}));
  EXPECT_EQ(end("commit_unmap_from_kv_tensors", "t1"), (Message{{"status", "committed"}}));
  EXPECT_EQ(text(end("abort_unmap_from_kv_tensors", "t1"), "error_type"), "state_consistency");
  EXPECT_EQ(prepare({1}, "t2"), (Message{{"status", "prepared"}}));
  EXPECT_EQ(end("abort_unmap_from_kv_tensors", "t2"), (Message{{"status", "aborted"}}));
  EXPECT_EQ(end("abort_unmap_from_kv_tensors", "t2"), (Message{{"status", "aborted"}}));
  EXPECT_EQ(allocator_->counts().mapped_pages, 4u);  // page 1 is still there
}

TEST_F(ServiceTest, ACombinedUnmapSaysInWhichHalfItFailed) {
  map({0, 1});
  EXPECT_EQ(prepare({0}, "t1", true), (Message{{"status", "committed"}}));
  const Message unmapped = prepare({0}, "t2", true);
  EXPECT_EQ(text(unmapped, "status"), "error");
  EXPECT_EQ(text(unmapped, "phase"), "prepare");
  EXPECT_EQ(text(unmapped, "error_type"), "state_consistency");
  vmm_.fault = [](const std::string& call, int) { return call == "unmap" ? 1 : 0; };
  EXPECT_EQ(text(prepare({1}, "t3", true), "phase"), "commit");
  vmm_.fault = nullptr;
  EXPECT_EQ(prepare({1}, "t4", false).front().first, "status");
}

TEST_F(ServiceTest, ADriverThatRefusesIsAnOperationThatFailed) {
  vmm_.fault = [](const std::string& call, int) { return call == "create" ? 2 : 0; };
  const Message reply = map({0});
  EXPECT_EQ(text(reply, "error_type"), "operation_failed");
  EXPECT_THAT(text(reply, "message"), HasSubstr("out_of_memory"));
  EXPECT_EQ(text(reply, "phase"), "(none)");
}

TEST_F(ServiceTest, AnUnknownGroupIsAnErrorAndMakesNothing) {
  const Message reply =
      ask({{"cmd", "map_to_kv_tensors"}, {"offsets", offsets({0})}, {"group_id", 5}});
  EXPECT_EQ(text(reply, "error_type"), "state_consistency");
  EXPECT_FALSE(allocator_->tensors_created(5));
}

TEST_F(ServiceTest, RequestsThatDoNotFitAreErrorsThatSayWhy) {
  const auto message = [this](const Message& request) {
    const Message reply = ask(request);
    EXPECT_EQ(text(reply, "status"), "error");
    return text(reply, "message");
  };
  EXPECT_THAT(message({{"cmd", "fly"}}), HasSubstr("fly"));
  EXPECT_THAT(message({{"cmd", "fly"}}), HasSubstr("unknown command"));
  EXPECT_THAT(message({}), HasSubstr("cmd"));
  EXPECT_THAT(message({{"cmd", 3}}), HasSubstr("cmd"));
  EXPECT_THAT(message({{"cmd", "map_to_kv_tensors"}}), HasSubstr("offsets"));
  EXPECT_THAT(message({{"cmd", "map_to_kv_tensors"}, {"offsets", "0"}}), HasSubstr("offsets"));
  EXPECT_THAT(message({{"cmd", "map_to_kv_tensors"}, {"offsets", offsets({})}, {"group_id", "0"}}),
              HasSubstr("group_id"));
  EXPECT_THAT(message({{"cmd", "commit_unmap_from_kv_tensors"}}), HasSubstr("transaction_id"));
  EXPECT_THAT(message({{"cmd", "prepare_unmap_from_kv_tensors"}, {"commit", 1}}),
              HasSubstr("commit"));
  EXPECT_TRUE(vmm_.mappings().empty());
}

TEST(ErrorReplyTest, TypesFollowWhatACallerCanDo) {
  const auto type = [](Code code) {
    return text_field(error_reply(Status::error(code, "x")), "error_type").value_or("");
  };
  EXPECT_EQ(type(Code::kQuarantined), "map_quarantined");
  EXPECT_EQ(type(Code::kFailedPrecondition), "state_consistency");
  EXPECT_EQ(type(Code::kNotFound), "state_consistency");
  EXPECT_EQ(type(Code::kOutOfMemory), "operation_failed");
  EXPECT_EQ(type(Code::kProtocol), "operation_failed");
}

TEST(ErrorReplyTest, WordsThatAreNotUtf8StillReachTheClient) {
  const Message reply = error_reply(Status::error(Code::kInternal, "x", "", 0, "says \xff\xfe"));
  EXPECT_TRUE(encode_pickle(reply).ok());
  EXPECT_THAT(text_field(reply, "message").value_or(""), HasSubstr("says \\xff\\xfe"));
}

// What a peer sent is quoted in part only, however long and whatever it is.
TEST_F(ServiceTest, ALongTextIsNotSentBack) {
  for (const std::string& command : {std::string(16u << 20, 'x'), std::string(1u << 20, '\xff')}) {
    const Message reply = ask({{"cmd", command}});
    EXPECT_THAT(text(reply, "message"), HasSubstr("unknown command"));
    EXPECT_THAT(text(reply, "message"), HasSubstr("bytes left out"));
    EXPECT_LT(encode_pickle(reply)->size(), 8192u);
  }
}

TEST_F(ServiceTest, ATransactionsNameIsKeptSoItIsShort) {
  map({0});
  EXPECT_EQ(text(prepare({0}, std::string(256, 't').c_str()), "status"), "prepared");
  const Message reply = prepare({0}, std::string(257, 't').c_str());
  EXPECT_THAT(text(reply, "message"), HasSubstr("has 257 bytes, expected 1 to 256"));
}

}  // namespace
}  // namespace kv
