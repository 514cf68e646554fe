#include "worker/protocol/diagnosis_intake.h"

#include <cmath>
#include <limits>
#include <utility>

#include <gmock/gmock.h>

namespace cp_pool::protocol {
namespace {

using namespace ::testing;

Diagnosis found() {
  Diagnosis out;
  out.certainty = Certainty::likely;
  out.id = "no_mask";
  out.cause = "the mask is missing";
  out.explains = {"out"};
  return out;
}

MaskPicture small_picture() {
  return {.q_per_cell = 1,
          .kv_per_cell = 2,
          .rows = {". ", "-."},
          .q_borders = {1},
          .kv_borders = {},
          .q_ranks = {0, -1},
          .kv_ranks = {0, 1}};
}

bool keeps_picture(MaskPicture picture) {
  Diagnosis diagnosis = found();
  diagnosis.picture = std::move(picture);
  diagnosis = well_formed(std::move(diagnosis));
  EXPECT_EQ(diagnosis.evidence.empty(), diagnosis.picture.has_value()) << "what is dropped is told";
  return diagnosis.picture.has_value();
}

TEST(Diagnosis, ThatIsWellFormedStaysAsItIs) {
  Diagnosis diagnosis = found();
  diagnosis.others = {"whole_keys"};
  diagnosis.evidence = {"dq is right"};
  diagnosis.ms = 2.5;
  const Diagnosis kept = well_formed(diagnosis);
  EXPECT_EQ(kept.certainty, Certainty::likely);
  EXPECT_EQ(kept.id, "no_mask");
  EXPECT_EQ(kept.cause, "the mask is missing");
  EXPECT_THAT(kept.explains, ElementsAre("out"));
  EXPECT_THAT(kept.others, ElementsAre("whole_keys"));
  EXPECT_THAT(kept.evidence, ElementsAre("dq is right"));
  EXPECT_EQ(kept.ms, 2.5);
}

TEST(Diagnosis, WithoutACauseOrAnIdIsUnknownAndSaysSo) {
  Diagnosis diagnosis = found();
  diagnosis.cause.clear();
  EXPECT_EQ(well_formed(diagnosis).certainty, Certainty::unknown);
  EXPECT_THAT(well_formed(diagnosis).cause, HasSubstr("names no cause"));
  for (const std::string id : {"", "unknown", "two words", "x\n", "<b>"}) {
    diagnosis = found();
    diagnosis.id = id;
    const Diagnosis kept = well_formed(diagnosis);
    EXPECT_EQ(kept.certainty, Certainty::unknown) << id;
    EXPECT_EQ(kept.id, Diagnosis::kUnknown) << id;
    EXPECT_THAT(kept.cause, HasSubstr("no usable id")) << id;
    EXPECT_THAT(kept.explains, IsEmpty()) << id;
  }
}

TEST(Diagnosis, ThatIsUnknownHasThatId) {
  Diagnosis diagnosis = found();
  diagnosis.certainty = Certainty::unknown;
  EXPECT_EQ(well_formed(diagnosis).id, Diagnosis::kUnknown);
  EXPECT_EQ(well_formed(diagnosis).cause, "the mask is missing");
}

TEST(Diagnosis, SentencesAreOnOneLineAndCut) {
  Diagnosis diagnosis = found();
  diagnosis.cause = "one\ntwo\tthree";
  diagnosis.evidence.assign(100, std::string(5000, 'x'));
  diagnosis.explains = {"out", "out", "", std::string(100, 'x'), "mask dv"};
  const Diagnosis kept = well_formed(diagnosis);
  EXPECT_EQ(kept.cause, "one two three");
  EXPECT_THAT(kept.evidence, SizeIs(kMaxSentences));
  for (const std::string& evidence : kept.evidence) EXPECT_LE(evidence.size(), kMaxSentenceBytes);
  EXPECT_THAT(kept.explains, ElementsAre("out", "mask dv"));
}

TEST(Diagnosis, APictureIsDroppedUnlessItsPartsFitTogether) {
  EXPECT_TRUE(keeps_picture(small_picture()));
  const auto changed = [](auto change) {
    MaskPicture picture = small_picture();
    change(picture);
    return keeps_picture(std::move(picture));
  };
  EXPECT_FALSE(changed([](MaskPicture& p) { p.rows.clear(); }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.rows = {"", ""}; }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.rows[1] = "."; }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.rows[1] = "x."; }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.rows.assign(513, ". "); }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.q_per_cell = 0; }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.q_borders = {0}; }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.q_borders = {1, 1}; }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.kv_borders = {2}; }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.q_ranks.pop_back(); }));
  EXPECT_TRUE(changed([](MaskPicture& p) { p.q_owners = {{0, 1}, {}}; }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.q_owners = {{0, 1}}; })) << "one for each row";
  EXPECT_FALSE(changed([](MaskPicture& p) { p.q_owners = {{1, 0}, {}}; })) << "ascending";
  EXPECT_FALSE(changed([](MaskPicture& p) { p.q_owners = {{-1}, {}}; }));
  EXPECT_FALSE(changed([](MaskPicture& p) { p.kv_ranks = {0, -2}; }));
}

TEST(Diagnosis, RectanglesThatAreNoneAreDropped) {
  Diagnosis diagnosis = found();
  WrongPairs& pairs = diagnosis.pairs.emplace();
  pairs.missing_pairs = -5;
  pairs.missing = {{.text = "good", .q_first = 1, .q_last = 1}, {.text = "", .q_last = 1}, {.text = "x", .q_first = 2}};
  pairs.excess.assign(100, {.text = "good"});
  const Diagnosis kept = well_formed(diagnosis);
  EXPECT_EQ(kept.pairs->missing_pairs, 0);
  ASSERT_THAT(kept.pairs->missing, SizeIs(1));
  EXPECT_EQ(kept.pairs->missing[0].text, "good");
  EXPECT_THAT(kept.pairs->excess, SizeIs(kMaxSentences));
  EXPECT_THAT(kept.evidence, ElementsAre(HasSubstr("rectangles")));
}

TEST(Diagnosis, OfManySentencesStillSaysWhatWasDropped) {
  Diagnosis diagnosis = found();
  diagnosis.evidence.assign(100, "dq is right");
  diagnosis.picture.emplace();      // a picture without a cell
  diagnosis.strips.emplace_back();  // a strip without a tensor
  const Diagnosis kept = well_formed(diagnosis);
  ASSERT_THAT(kept.evidence, SizeIs(kMaxSentences));
  EXPECT_EQ(kept.evidence.front(), "dq is right");
  EXPECT_THAT(kept.evidence, Contains(HasSubstr("picture of the mask")));
  EXPECT_THAT(kept.evidence, Contains(HasSubstr("strips of errors")));
}

TEST(Diagnosis, RatiosOfAStripAreOnTheScale) {
  Diagnosis diagnosis = found();
  const double inf = std::numeric_limits<double>::infinity();
  ErrorStrip strip;
  strip.by_row = {0.5};
  diagnosis.strips.push_back(strip);  // a strip without a tensor
  strip.tensor = "dq";
  strip.by_row.clear();
  diagnosis.strips.push_back(strip);
  strip.by_row = {0.5, std::nan(""), inf, -1};
  diagnosis.strips.push_back(strip);
  diagnosis.ms = std::nan("");
  const Diagnosis kept = well_formed(diagnosis);
  ASSERT_THAT(kept.strips, SizeIs(1));
  EXPECT_THAT(kept.strips[0].by_row, ElementsAre(0.5, ErrorStrip::kOffTheScale, ErrorStrip::kOffTheScale, 0));
  EXPECT_THAT(kept.evidence, ElementsAre(HasSubstr("strips")));
  EXPECT_EQ(kept.ms, 0);
}

}  // namespace
}  // namespace cp_pool::protocol
