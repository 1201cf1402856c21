#include "cinch/inspect/oom_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cinch/core/error.h"
#include "cinch/core/text.h"

namespace cinch::inspect {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

const std::filesystem::path kTexts = std::filesystem::path(CINCH_SOURCE_DIR) / "tests/data/oom_texts";

struct Expected {
  std::string name, asked, room, short_by, verdict;
};

std::vector<Expected> expectations() {
  std::istringstream table(read_file(kTexts / "expected.tsv"));
  std::vector<Expected> rows;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream cells(line);
    Expected row;
    for (std::string* cell : {&row.name, &row.asked, &row.room, &row.short_by, &row.verdict}) {
      std::getline(cells, *cell, '\t');
    }
    rows.push_back(row);
  }
  return rows;
}

std::string name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPossible:
      return "possible";
    case Verdict::kNo:
      return "no";
    case Verdict::kNotFragmentation:
      return "not_fragmentation";
    case Verdict::kUncertain:
      break;
  }
  return "uncertain";
}

/// Within a byte or two: the table was computed with fractions of bytes.
void expect_near(const std::optional<Printed>& figure, const std::string& expected, const std::string& what) {
  if (expected == "-") {
    EXPECT_FALSE(figure.has_value()) << what;
    return;
  }
  ASSERT_TRUE(figure.has_value()) << what;
  EXPECT_NEAR(static_cast<double>(figure->bytes.count()), std::stod(expected), 2) << what;
  EXPECT_LE(figure->least, figure->bytes) << what;
  EXPECT_LE(figure->bytes, figure->most) << what;
}

void expect_as_in_table(const std::string& text, const Expected& row, const std::string& how) {
  SCOPED_TRACE(row.name + ", " + how);
  const OomReport report = parse_oom_text(text);
  ASSERT_THAT(report.errors, SizeIs(1));
  const OomError& error = report.errors.front();
  EXPECT_EQ(name_of(error.verdict), row.verdict);
  expect_near(error.asked, row.asked, "asked");
  expect_near(error.room, row.room, "room");
  expect_near(error.short_by, row.short_by, "short by");
}

std::string wrapped(const std::string& text, std::size_t width) {
  std::string lines;
  std::size_t column = 0;
  for (const char c : text) {
    if (c != '\n' && column == width) {
      lines += '\n';
      column = 0;
    }
    lines += c;
    column = c == '\n' ? 0 : column + 1;
  }
  return lines;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
  return text;
}

TEST(OomText, VerdictsOnRealTextsAreRightByArithmetic) {
  const auto rows = expectations();
  ASSERT_GE(rows.size(), 40u);
  for (const Expected& row : rows) expect_as_in_table(read_file(kTexts / (row.name + ".txt")), row, "as it is");
}

TEST(OomText, WrappingColoursPrefixesAndEscapesDoNotMatter) {
  for (const Expected& row : expectations()) {
    const std::string text = read_file(kTexts / (row.name + ".txt"));
    for (const std::size_t width : {7, 40, 80}) expect_as_in_table(wrapped(text, width), row, "wrapped");
    expect_as_in_table("\x1b[31;1m" + replaced(text, " ", " \x1b[0m\x1b[38;5;9m") + "\x1b[0m", row, "coloured");
    expect_as_in_table("log: \"" + replaced(text, "\n", "\\n") + "\"}", row, "in JSON");
    for (const std::string prefix : {"[rank0]: ", "(EngineCore_DP0 pid=39535) ERROR 03-03 19:38:29 [core.py:708] ",
                                     "2025-11-12T11:25:13.4961658Z ", "> "}) {
      std::string lines = prefix;
      lines += replaced(text, "\n", "\n" + prefix);
      expect_as_in_table(lines, row, prefix);
    }
    expect_as_in_table(
        "Traceback (most recent call last):\n  File \"/home/u/model.py\", line 22, in forward\n"
        "    return self.gpu_cache.allocate(x)  # 12 GiB\ntorch.OutOfMemoryError: " +
            text + "\n\nThe above exception was the direct cause of the following exception:\n",
        row, "in a traceback");
  }
}

TEST(OomText, EveryFigureOfTheNewWordingIsRead) {
  const OomError error = parse_oom_text(read_file(kTexts / "cads-4.txt")).errors.front();
  EXPECT_EQ(error.source, OomError::Source::kCuda);
  EXPECT_EQ(error.device, 0);
  EXPECT_EQ(error.capacity->bytes, Bytes::parse("31.47GiB"));
  EXPECT_EQ(error.free->bytes, Bytes::parse("12.73GiB"));
  EXPECT_EQ(error.this_process->bytes, Bytes::parse("18.73GiB"));
  EXPECT_EQ(error.allocated->bytes, Bytes::parse("9.08GiB"));
  EXPECT_EQ(error.unallocated->bytes, Bytes::parse("9.35GiB"));
  EXPECT_EQ(error.advice, "expandable_segments:True");
  // Half of the last printed digit: 0.005 GiB.
  EXPECT_EQ((error.free->most - error.free->bytes).count(), 5368710);
  EXPECT_EQ((error.free->bytes - error.free->least).count(), 5368710);
}

TEST(OomText, OtherProcessesOnTheCardAreNamed) {
  const OomError error = parse_oom_text(read_file(kTexts / "returnn-1469.txt")).errors.front();
  ASSERT_THAT(error.processes, SizeIs(15));
  EXPECT_EQ(error.processes.front().id, 101549);
  EXPECT_EQ(error.processes.front().in_use.bytes, Bytes::parse("1.19GiB"));
  EXPECT_FALSE(error.processes.front().perhaps_this);  // The message names this process apart.
}

TEST(OomText, InAContainerTheProcessMayBeListedUnderAnotherNumber) {
  const OomError error = parse_oom_text(read_file(kTexts / "kaito-976.txt")).errors.front();
  ASSERT_THAT(error.processes, SizeIs(1));
  EXPECT_TRUE(error.processes.front().perhaps_this);
  EXPECT_EQ(error.private_pools->bytes, Bytes::parse("46MiB"));
}

TEST(OomText, AMemoryFractionLimitsWhatIsFree) {
  const OomError error = parse_oom_text(read_file(kTexts / "therock-2118.txt")).errors.front();
  EXPECT_EQ(error.source, OomError::Source::kHip);
  EXPECT_EQ(error.allowed->bytes, Bytes::parse("1.05GiB"));
  EXPECT_LT(error.room->most, Bytes::parse("70MiB"));  // Though 244 GiB are free on the card.
}

TEST(OomText, TheRoundingOfPrintedFiguresCanLeaveTheVerdictOpen) {
  const auto verdict = [](const std::string& asked) {
    return parse_oom_text("CUDA out of memory. Tried to allocate " + asked +
                          ". GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free. Of the allocated memory "
                          "5.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.")
        .errors.front()
        .verdict;
  };
  EXPECT_EQ(verdict("1.98 GiB"), Verdict::kPossible);
  EXPECT_EQ(verdict("1.99 GiB"), Verdict::kUncertain);
  EXPECT_EQ(verdict("2.00 GiB"), Verdict::kUncertain);
  EXPECT_EQ(verdict("2.01 GiB"), Verdict::kUncertain);
  EXPECT_EQ(verdict("2.02 GiB"), Verdict::kNo);
}

TEST(OomText, ATruncatedMessageStillBoundsWhatCouldBe) {
  const std::string head = "CUDA out of memory. Tried to allocate ";
  const std::string card = ". GPU  has a total capacity of 8.00 GiB of which 1.00 GiB is free. Process";
  EXPECT_EQ(parse_oom_text(head + "9.00 GiB" + card).errors.front().verdict, Verdict::kNo);
  EXPECT_EQ(parse_oom_text(head + "2.00 GiB" + card).errors.front().verdict, Verdict::kUncertain);
  EXPECT_EQ(parse_oom_text(head + "0.50 GiB" + card).errors.front().verdict, Verdict::kNotFragmentation);
  EXPECT_EQ(parse_oom_text(head + "2.00 GiB").errors.front().verdict, Verdict::kUncertain);
}

TEST(OomText, WhatTheMessageDoesNotNameIsFoundBySubtraction) {
  const auto elsewhere = [](const std::string& text) { return parse_oom_text(text).errors.front().elsewhere; };
  // total − reserved − free, in MiB of two decimals each: 3.79 GiB − 666 MiB − 6 MiB, and 44.56 − 27.93 − 0.55 GiB.
  EXPECT_NEAR(static_cast<double>(elsewhere(read_file(kTexts / "alphaction-58.txt"))->bytes.count()),
              3.79 * (1 << 30) - 672.0 * (1 << 20), 2);
  EXPECT_NEAR(static_cast<double>(elsewhere(read_file(kTexts / "localgpt-falcon-7.txt"))->bytes.count()),
              (44.56 - 27.93) * (1 << 30) - 565.31 * (1 << 20), 2);
  const auto hidden = elsewhere(
      "CUDA out of memory. Tried to allocate 512.00 MiB (GPU 1; 24.00 GiB total capacity; 4.10 GiB already allocated; "
      "10.00 MiB free; 4.20 GiB reserved in total by PyTorch)");
  EXPECT_NEAR(static_cast<double>(hidden->bytes.count()), 19.8 * (1 << 30) - 10.0 * (1 << 20), 2);
  // What is listed by name is not counted again; a program whose own total is printed is taken at that.
  EXPECT_LT(elsewhere(read_file(kTexts / "returnn-1469.txt"))->bytes, Bytes::parse("1GiB"));
  EXPECT_LT(elsewhere(read_file(kTexts / "kaito-976.txt"))->bytes, Bytes::parse("100MiB"));
  EXPECT_FALSE(elsewhere(read_file(kTexts / "animatediff-320.txt")).has_value());
}

TEST(OomText, RoundingLeavesARangeOfWhatWasMissing) {
  const auto range = [](const char* name) {
    return parse_oom_text(read_file(kTexts / name)).errors.front().short_by_range;
  };
  // Three figures of two decimals of a GiB: ±0.015 GiB.
  EXPECT_NEAR(static_cast<double>(range("cads-4.txt")->first.count()), 0.685 * (1 << 30), 8);
  EXPECT_NEAR(static_cast<double>(range("cads-4.txt")->second.count()), 0.715 * (1 << 30), 8);
  EXPECT_LT(range("one-2-3-45-25.txt")->first, Bytes(0));
  EXPECT_GT(range("one-2-3-45-25.txt")->second, Bytes(0));
  EXPECT_FALSE(range("mxfold2-20.txt").has_value());
}

TEST(OomText, ARefusalOfWhatTheCardHadIsNoFragmentation) {
  const auto verdict = [](const std::string& free, const std::string& allowed) {
    return parse_oom_text(
               "CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of 8.00 GiB of "
               "which " +
               free + " is free. " + allowed +
               "Of the allocated memory 5.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by "
               "PyTorch but unallocated.")
        .errors.front()
        .verdict;
  };
  EXPECT_EQ(verdict("100.02 MiB", ""), Verdict::kNotFragmentation);
  EXPECT_EQ(verdict("100.00 MiB", ""), Verdict::kPossible);                  // Perhaps a little less than asked.
  EXPECT_EQ(verdict("1.00 GiB", "6.05 GiB allowed; "), Verdict::kPossible);  // The fraction forbade it.
}

TEST(OomText, SegmentsAreToldFromTensors) {
  EXPECT_TRUE(parse_oom_text(read_file(kTexts / "taggui-188.txt")).errors.front().asked_is_segment);
  EXPECT_TRUE(parse_oom_text(read_file(kTexts / "alphaction-58.txt")).errors.front().asked_is_segment);
  EXPECT_FALSE(parse_oom_text(read_file(kTexts / "cads-4.txt")).errors.front().asked_is_segment);
}

TEST(OomText, SeveralErrorsOfOnePasteAreToldApart) {
  const std::string first = read_file(kTexts / "cads-4.txt"), second = read_file(kTexts / "kaito-976.txt");
  const std::string paste = "[rank1]: torch.OutOfMemoryError: " + first + "\nDuring handling of the above exception\n" +
                            first + "[rank0]: torch.OutOfMemoryError: " + second;
  const OomReport report = parse_oom_text(paste);
  ASSERT_THAT(report.errors, SizeIs(2));
  EXPECT_EQ(report.errors[0].times, 2u);
  EXPECT_EQ(report.errors[1].times, 1u);
  EXPECT_EQ(paste.substr(report.errors[0].offset, 17), "Tried to allocate");
  EXPECT_EQ(paste.substr(report.errors[1].offset, 26), "Tried to allocate 546.00 M");
}

TEST(OomText, WordsOfOthersAreNoError) {
  for (const char* text : {"", "all is well", "I tried to allocate 3 GiB of time", "Tried to allocate", "2.00 GiB",
                           "out of memory of old times", "DefaultCPUAllocator: can't allocate memory: you tried to"}) {
    EXPECT_THROW(parse_oom_text(text), DataError) << text;
  }
  try {
    parse_oom_text("all is well", "error.txt");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("error.txt, byte 0: no out-of-memory error"));
    EXPECT_FALSE(error.hint().empty());
  }
}

TEST(OomText, AnErrorWithoutFiguresIsStillAnError) {
  for (const char* text :
       {"RuntimeError: CUDA error: out of memory", "cuda runtime error (2) : out of memory at THCStorage.cu:58",
        "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)", "torch.OutOfMemoryError: CUDA out of memory"}) {
    const OomReport report = parse_oom_text(text);
    ASSERT_THAT(report.errors, SizeIs(1)) << text;
    EXPECT_EQ(report.errors.front().verdict, Verdict::kUncertain) << text;
    EXPECT_FALSE(report.errors.front().asked.has_value()) << text;
  }
}

TEST(OomText, AbsurdFiguresAreLeftOut) {
  const auto asked = [](const std::string& figure) {
    return parse_oom_text("CUDA out of memory. Tried to allocate " + figure + ". CUDA out of memory")
        .errors.front()
        .asked;
  };
  EXPECT_FALSE(asked("99999999999999999999999999.00 GiB").has_value());
  EXPECT_FALSE(asked("17179869184.00 GiB").has_value());
  EXPECT_FALSE(asked("1.123456789 GiB").has_value());
  EXPECT_EQ(asked("512 bytes")->most, Bytes(512));
}

TEST(OomText, TimeIsLinearInTheText) {  // A megabyte of each is read in a blink; were it quadratic, in minutes.
  for (const std::string part :
       {"tried to allocate ", "Process 1 has ", "out of memory", "\n[", "\x1b[", "(pid=", "9"}) {
    std::string text = read_file(kTexts / "cads-4.txt");
    while (text.size() < 1 << 20) text += part;
    EXPECT_THAT(parse_oom_text(text).errors, SizeIs(1));
  }
}
}  // namespace
}  // namespace cinch::inspect
