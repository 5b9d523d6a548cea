#include "cache/disk_listing.h"

#include "cache/disk_store_fixture.h"

namespace espalier::cache {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class DiskListingTest : public DiskStoreTest {};

TEST_F(DiskListingTest, ShowsConversationsLastUsedFirst) {
    EXPECT_THAT(list_conversations(directory_)->conversations, IsEmpty());
    auto store = open();
    keep(*store, tokens_of(700, 1));
    const auto start = tokens_of(700, 1);
    keep(*store, std::span(start).first(300));
    keep(*store, tokens_of(100, 2));
    const int64_t bytes = store->gauges().bytes;
    const auto listing = list_conversations(directory_);  // beside the running store
    ASSERT_TRUE(listing.has_value());
    ASSERT_THAT(listing->conversations, SizeIs(2));
    EXPECT_EQ(listing->conversations[0].tokens, 100);
    EXPECT_EQ(listing->conversations[0].snapshots, 1);
    EXPECT_EQ(listing->conversations[0].identity.model, "demo");
    EXPECT_EQ(listing->conversations[1].tokens, 700);
    EXPECT_EQ(listing->conversations[1].snapshots, 2);
    EXPECT_EQ(listing->bytes, bytes);
    EXPECT_EQ(listing->conversations[0].bytes + listing->conversations[1].bytes, bytes);
}

TEST_F(DiskListingTest, RemovesByIdButNotUnderARunningStore) {
    auto store = open();
    keep(*store, tokens_of(700, 1));
    keep(*store, tokens_of(100, 2));
    const auto listing = list_conversations(directory_);
    const std::string id = listing->conversations[1].id;
    const auto refused = remove_conversations(directory_, {{id}, false});
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr("in use"));
    store.reset();

    const auto unknown = remove_conversations(directory_, {{id, "zz"}, false});
    ASSERT_FALSE(unknown.has_value());
    EXPECT_THAT(unknown.error().message, HasSubstr("no conversation \"zz\""));
    EXPECT_FALSE(remove_conversations(directory_, {{""}, false}).has_value());
    EXPECT_THAT(list_conversations(directory_)->conversations, SizeIs(2));

    const auto removed = remove_conversations(directory_, {{id.substr(0, 10)}, false});
    ASSERT_TRUE(removed.has_value());
    EXPECT_EQ(removed->conversations, 1);
    EXPECT_EQ(removed->bytes, listing->conversations[1].bytes);
    store = open();
    EXPECT_EQ(store->find_longest(joined(tokens_of(700, 1), {1}), {}), 0);
    EXPECT_EQ(restored(*store, joined(tokens_of(100, 2), {1})), 100);
}

TEST_F(DiskListingTest, RemovesEverythingThatIsOurs) {
    keep(*open(), tokens_of(700, 1));
    std::ofstream(directory_ + "/" + state_file_name(1, 2)) << "damaged";
    std::ofstream(directory_ + "/" + pages_file_name(9)) << encode_pages_header({9, 64});
    fs::create_directory(directory_ + "/damaged");
    std::ofstream(directory_ + "/damaged/" + state_file_name(3, 4)) << "damaged before";
    std::ofstream(directory_ + "/notes.txt") << "somebody else's";
    EXPECT_EQ(list_conversations(directory_)->n_damaged, 2);
    const auto removed = remove_conversations(directory_, {{}, true});
    ASSERT_TRUE(removed.has_value()) << removed.error().message;
    EXPECT_EQ(removed->conversations, 1);
    EXPECT_EQ(list_conversations(directory_)->bytes, 0);
    EXPECT_TRUE(fs::exists(directory_ + "/notes.txt"));
    EXPECT_TRUE(remove_conversations(directory_ + "/nowhere", {{}, true}).has_value());
    EXPECT_FALSE(remove_conversations(directory_ + "/nowhere", {{"ab"}, false}).has_value());
}

}  // namespace
}  // namespace espalier::cache
