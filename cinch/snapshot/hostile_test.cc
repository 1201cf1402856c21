// Pickles that nobody honest writes: an error with the offset, in bounded time and memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zstd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/trace.h"

namespace cinch::snapshot {
namespace {
using testing::HasSubstr;
using namespace std::string_literals;

std::string text(const std::string& value) { return "\x8c"s + static_cast<char>(value.size()) + value; }
std::string times(std::size_t count, const std::string& part) {
  std::string all;
  all.reserve(count * part.size());
  for (std::size_t i = 0; i < count; ++i) all += part;
  return all;
}
const std::string kBegin = "\x80\x04"s;

/// A snapshot whose device_traces are `traces` (an expression) and whose segments are `segments`.
std::string snapshot_of(const std::string& traces, const std::string& segments = "]") {
  return kBegin + "}(" + text("segments") + segments + text("device_traces") + traces + "u.";
}
std::string event_of(const std::string& address, const std::string& size = "K\x05") {
  return "}(" + text("action") + text("alloc") + text("addr") + address + text("size") + size + text("stream") +
         "K\0"s + "u";
}

/// The message, or "" if the bytes were accepted.
std::string refusal(const std::string& bytes) {
  try {
    Snapshot::parse(bytes, "hostile.pickle");
    return {};
  } catch (const DataError& error) {
    EXPECT_LE(error.offset(), bytes.size());
    EXPECT_THAT(error.what(), HasSubstr("hostile.pickle, byte "));
    return error.what();
  }
}

TEST(HostilePickle, TheExamplesAreOtherwiseFine) {
  EXPECT_EQ(refusal(snapshot_of("](](" + event_of("K\x01") + "ee")), "");
  EXPECT_EQ(refusal(snapshot_of("]")), "");
}

TEST(HostilePickle, TruncatedAnywhereIsSaidSo) {
  const std::string file = std::string(CINCH_SOURCE_DIR) + "/tests/data/snapshots/step-end.pickle";
  const std::string whole = read_file(file);
  for (std::size_t size = 2; size < whole.size(); size += 611) {
    EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("ends too early")) << size;
  }
}

TEST(HostilePickle, WhateverCallsIsRefusedByName) {
  EXPECT_THAT(refusal(kBegin + "cos\nsystem\n(" + text("true") + "tR."),
              HasSubstr("byte 2: the pickle calls Python code (opcode GLOBAL"));
  EXPECT_THAT(refusal(kBegin + text("os") + text("system") + "\x93."), HasSubstr("STACK_GLOBAL"));
  for (const char* opcode : {"R", "b", "i", "o", "\x81", "\x92", "\x82", "P", "Q", "\x97"}) {
    EXPECT_THAT(refusal(kBegin + "NN" + opcode + "xxxx."), HasSubstr("calls Python code")) << opcode;
  }
  EXPECT_THAT(refusal(kBegin + "\xff."), HasSubstr("there is no opcode 255"));
  EXPECT_THAT(refusal("\x80\x09}."), HasSubstr("protocol 9"));
}

TEST(HostilePickle, AListThatHoldsItselfIsNoTrace) {
  EXPECT_THAT(refusal(snapshot_of("]q\0h\0a"s)), HasSubstr("used twice"));
  EXPECT_THAT(refusal(snapshot_of("](]q\1h\1ae"s)), HasSubstr("no event"));
  EXPECT_THAT(refusal(snapshot_of("]", "]q\1h\1a"s)), HasSubstr("a dict is wanted"));
  const std::string frames = "]q\1h\1a"s;  // Of a stack.
  EXPECT_THAT(refusal(snapshot_of("](](}(" + text("frames") + frames + text("action") + text("alloc") + text("size") +
                                  "K\1" + text("addr") + "K\1uee")),
              HasSubstr("a frame of a stack"));
  EXPECT_THAT(refusal(kBegin + "}q\0("s + text("segments") + "h\0u."s), HasSubstr("segments is no list"));
}

// The list is walked as blocks while it would become a stack.
TEST(HostilePickle, AListOfBlocksIsNoStackOfOneOfThem) {
  const std::string block = "}(" + text("size") + "K\1" + text("state") + text("inactive") + text("filename") +
                            text("f") + text("name") + text("n") + text("line") + "K\1" + text("frames") + "h\7" +
                            times(40, text("more") + "N") + "u";
  EXPECT_THAT(refusal(snapshot_of("]", "](}(" + text("address") + "K\1" + text("total_size") + "K\2" + text("blocks") +
                                           "]q\7("s + block + block + "eue")),
              HasSubstr("used twice"));
}

TEST(HostileJson, SizesThatContradictTheirBlockAreItsAndCounted) {
  for (const char* size : {"300", "1099511627776"}) {
    const std::string json =
        R"({"segments": [{"address": 4096, "total_size": 1024, "blocks": [
            {"size": 1024, "requested_size": 100, "state": "active_allocated"}]}], "device_traces": [[
            {"action": "alloc", "addr": 4096, "stream": 0, "size": )" +
        std::string(size) + "}]]}";
    const Snapshot snapshot = Snapshot::parse(json, "x");
    EXPECT_EQ(snapshot.devices()[0].left_out, 1u);
    trace::Trace trace;
    snapshot.play(snapshot.devices()[0], trace);
    EXPECT_EQ(trace.events().back().bytes, Bytes(100));
  }
}

TEST(HostileJson, MessagesAreShortAndPrintable) {
  for (const std::string& bad : {"\x1b[31m\xff\x7f\""s, times(100'000, "9")}) {
    try {
      Snapshot::parse("{\"segments\": " + bad, "x");
      ADD_FAILURE();
    } catch (const DataError& error) {
      const std::string what = error.what();
      EXPECT_LT(what.size(), 300u);
      for (const char character : what) EXPECT_TRUE(character >= ' ' && character <= '~');
    }
  }
}

TEST(HostilePickle, NestingCostsNothing) {
  EXPECT_THAT(refusal(snapshot_of(times(1'000'000, "](") + times(1'000'000, "e"))), HasSubstr("no event"));
  EXPECT_THAT(refusal(snapshot_of(times(1'000'000, "]("))), HasSubstr("no dict"));
  EXPECT_THAT(refusal(kBegin + times(1'000'000, "(")), HasSubstr("ends too early"));
}

TEST(HostilePickle, IntegersBeyond64BitsAreNoAddresses) {
  const std::string huge = "\x8a\xff"s + times(254, "\xab") + "\x7f";
  EXPECT_THAT(refusal(snapshot_of("](](" + event_of(huge) + "ee")), HasSubstr("no integer of 64 bits"));
  EXPECT_THAT(refusal(snapshot_of("](](" + event_of("\x8b\xff\xff\xff\x7f") + "ee")),
              HasSubstr("an integer of 2147483647 bytes"));
  EXPECT_THAT(refusal(snapshot_of("](](" + event_of("\x8a\x08\0\0\0\0\0\0\0\x80"s) + "ee")),
              HasSubstr("address of an event is -9223372036854775808"));
  EXPECT_THAT(refusal(snapshot_of("](](" + event_of("K\1", "J\xff\xff\xff\xff") + "ee")),
              HasSubstr("size of an event is -1"));
  EXPECT_THAT(refusal(snapshot_of("](](" + event_of("I99999999999999999999\n") + "ee")),
              HasSubstr("no integer of 64 bits"));
  EXPECT_EQ(refusal(snapshot_of("](](" + event_of("\x8a\x09\5\0\0\0\0\0\0\0\0"s) + "ee")), "");  // Long, but 5.
}

TEST(HostilePickle, WrongTypesAreSaidSo) {
  EXPECT_THAT(refusal(snapshot_of("](](" + event_of("N") + "ee")), HasSubstr("no integer"));
  EXPECT_THAT(refusal(snapshot_of("](](" + event_of(text("7")) + "ee")), HasSubstr("no integer"));
  EXPECT_THAT(refusal(snapshot_of("K\1")), HasSubstr("device_traces is no list"));
  EXPECT_THAT(refusal(snapshot_of("](K\1e")), HasSubstr("no list"));
  EXPECT_THAT(refusal(snapshot_of("](](K\1ee")), HasSubstr("no event"));
  EXPECT_THAT(refusal(snapshot_of("](](}ee")), HasSubstr("no event"));
  EXPECT_THAT(refusal(kBegin + "K\1."), HasSubstr("a dict is wanted"));
  EXPECT_THAT(refusal(kBegin + "}."), HasSubstr("no memory snapshot"));
  EXPECT_THAT(refusal(kBegin + "."), HasSubstr("too little on the stack"));
  EXPECT_THAT(refusal(kBegin + "}(K\1u."), HasSubstr("a key without a value"));
  EXPECT_THAT(refusal(kBegin + "u."), HasSubstr("needs a mark"));
  EXPECT_THAT(refusal(kBegin + "(e."), HasSubstr("too little on the stack"));
  EXPECT_THAT(refusal(kBegin + "K\1K\1a."), HasSubstr("no list"));
}

TEST(HostilePickle, LengthsThatLieCostNothing) {
  EXPECT_THAT(refusal(kBegin + "X\xff\xff\xff\x03"s), HasSubstr("ends too early"));
  EXPECT_THAT(refusal(kBegin + "X\xff\xff\xff\xff"s), HasSubstr("a text of 4294967295 bytes"));
  EXPECT_THAT(refusal(kBegin + "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s),
              HasSubstr("a text of 18446744073709551615 bytes"));
  EXPECT_THAT(refusal(kBegin + "\x8e\xff\xff\xff\xff\xff\xff\xff\xff"s), HasSubstr("ends too early"));
  EXPECT_THAT(refusal(kBegin + "Nr\xff\xff\xff\xff."s), HasSubstr("memo slot is out of range"));
  EXPECT_THAT(refusal(kBegin + "j\xff\xff\xff\xff."s), HasSubstr("never put"));
  EXPECT_THAT(refusal(kBegin + "Np123456789012345678901234567890\n."), HasSubstr("out of range"));
}

/// `begin` and so many MiB of zeros, compressed.
std::string bomb(const std::string& begin, int mebibytes) {
  const std::string zeros(1u << 20, '\0');
  std::string out(1u << 20, '\0');
  const std::unique_ptr<ZSTD_CStream, decltype(&ZSTD_freeCStream)> state(ZSTD_createCStream(), ZSTD_freeCStream);
  ZSTD_outBuffer written{out.data(), out.size(), 0};
  const auto add = [&](const std::string& part, ZSTD_EndDirective end) {
    ZSTD_inBuffer in{part.data(), part.size(), 0};
    while (ZSTD_compressStream2(state.get(), &written, &in, end) != 0 || in.pos < in.size) {
      if (end == ZSTD_e_continue && in.pos == in.size) break;
    }
  };
  add(begin, ZSTD_e_continue);
  for (int i = 0; i < mebibytes; ++i) add(zeros, ZSTD_e_continue);
  add("", ZSTD_e_end);
  out.resize(written.pos);
  return out;
}

TEST(HostilePickle, BombsAreRefusedOnceTheyAreKnown) {
  const std::string two_gibibytes = "\x8e\0\0\0\x80\0\0\0\0"s;  // Bytes, which nobody needs: skipped.
  try {
    Snapshot::parse(bomb(kBegin + two_gibibytes, 1100), "bomb.pickle.zst");
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("inflates beyond all measure"));
  }
}

// An event may be named again through the memo; its dict and its list are what they were.
TEST(HostilePickle, EventsMayBeUsedAgain) {
  const std::string event = "}q\7("s + event_of("K\1").substr(2);
  const Snapshot snapshot = Snapshot::parse(snapshot_of("](](" + event + "h\7h\7ee"), "x");
  EXPECT_EQ(snapshot.devices()[0].events, 3u);
  const Snapshot two = Snapshot::parse(snapshot_of("](](" + event + "e](h\7ee"), "x");
  ASSERT_EQ(two.devices().size(), 2u);
  EXPECT_EQ(two.devices()[1].events, 1u);
  EXPECT_EQ(Snapshot::parse(snapshot_of("](](" + event_of("K\1") + "2ee"), "x").devices()[0].events, 2u);
  EXPECT_EQ(Snapshot::parse(snapshot_of("](](" + times(3, event_of("K\1")) + "0ee"), "x").devices()[0].events, 2u);
}

TEST(HostilePickle, WhatChangesAfterItsUseIsRefused) {
  const std::string event = "}q\7("s + event_of("K\1").substr(2);
  EXPECT_THAT(refusal(snapshot_of("](](" + event + "h\7(" + text("size") + "K\2u0ee")), HasSubstr("no longer one"));
}

// A few bytes that name a long list a thousand times over.
TEST(HostilePickle, ListsMultiplyNothing) {
  const std::string events = "]q\7("s + times(1'000, event_of("K\1")) + "e";
  EXPECT_THAT(refusal(snapshot_of("](" + events + times(1'000, "h\7") + "e")), HasSubstr("used twice"));
  const std::string blocks =
      "]q\5("s + times(1'000, "}(" + text("size") + "K\1" + text("state") + text("inactive") + "u") + "e";
  const auto segment = [](const std::string& address, const std::string& its_blocks) {
    return "}(" + text("address") + address + text("total_size") + "M\xe8\x03" + text("blocks") + its_blocks + "u";
  };
  EXPECT_THAT(refusal(snapshot_of("]", "](" + segment("K\0"s, blocks) + segment("M\0\x10"s, "h\5") + "e")),
              HasSubstr("used twice"));
}

TEST(HostilePickle, ManyValuesAreRefusedBeforeMemoryIsShort) {
  rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  const std::string lists(std::size_t{8'300'000}, ']');
  EXPECT_THAT(refusal(kBegin + lists + lists), HasSubstr("values"));
  EXPECT_THAT(refusal(kBegin + lists + std::string(lists.size() + 1'000'000, 'N')), HasSubstr("values"));
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss, (std::int64_t{2} << 20) + before.ru_maxrss);  // KiB
}

TEST(Pickle, OldProtocolsAreTextAndMeanTheSame) {
  const std::string old =
      "(dp0\nVsegments\np1\n(lp2\nsVdevice_traces\np3\n(lp4\n(lp5\n("
      "dp6\nVaction\np7\nValloc\np8\nsVaddr\np9\nI4096\nsVsize\np10\n"
      "L12L\nsVstream\np11\nI0\nsVframes\np12\n(lp13\n(dp14\nVfilename\np15\nV\\u00e4."
      "py\np16\nsVline\np17\nI3\nsVname\np18\n"
      "S'f\\n'\np19\nsasaas.";
  const Snapshot snapshot = Snapshot::parse(old, "old");
  ASSERT_EQ(snapshot.devices().size(), 0u + 1);
  EXPECT_EQ(snapshot.devices()[0].events, 1u);
  const trace::Frame frame = snapshot.stacks()[trace::StackId{1}][0];
  EXPECT_EQ(snapshot.stacks().names()[frame.file], "\xc3\xa4.py");
  EXPECT_EQ(snapshot.stacks().names()[frame.function], "f\n");
}
}  // namespace
}  // namespace cinch::snapshot
