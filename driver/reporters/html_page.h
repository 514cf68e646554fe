// The page of the HTML report, an HtmlDocument. Its tables are the texts that the terminal shows; its pictures come
// from reporters/pictures/.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cases/diagnosis.h"
#include "driver/events.h"
#include "driver/reporters/pictures/features_table.h"
#include "driver/reporters/pictures/timeline.h"

namespace cp_pool {

struct HtmlCase {
  std::size_t index = 0;
  std::string id;
  std::string suite;
  std::string model;
  std::string column;  // the column of the overview: "p2p thd"
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string word;  // outcome_word
  Urgency urgency = Urgency::other;
  double ms = 0;
  std::string backend;
  std::string nearest;  // the check nearest to its bound: "0.43 dq rank 1"
  std::string note;     // one line with the reason and remarks
  std::vector<EarlierRun> earlier;
};

// The texts of a case that did not pass.
struct HtmlFailure {
  std::size_t index = 0;
  std::string word;  // outcome_word
  std::string head;  // "ID after 12 ms on pool cpu/2 #1"
  std::string text;  // why it failed, as a sentence on the first line; then the evidence: checks, errors, stderr
  std::string rerun;
  std::optional<Diagnosis> diagnosis;  // for its pictures; its words are in `text`
  std::size_t kind = 0;                // number of its kind (FailureKinds)
};

struct HtmlPool {
  PoolId id;
  std::string worker;    // its name and versions
  std::string hosts;     // without duplicates
  double ready_ms = -1;  // negative if it never was ready
  int cases = 0;
  std::string end;  // why it ended
};

struct HtmlPage {
  std::string title;  // "te-flash (small) on cpu"
  std::string run;    // version, when, how long
  bool good = false;
  std::string ledger;
  std::string summary;                // text, like the next four
  std::string failed;                 // the failures, one line each
  std::string perf;                   // empty if no steps were timed
  std::string timings;                // empty if no case ran
  std::vector<HtmlFailure> failures;  // in the order of `failed`: kind by kind
  std::vector<HtmlPool> pools;
  std::vector<HtmlCase> cases;  // in the order of the list
  FeaturesTable features;
  Timeline timeline;
};

// Returns the document, which is also well-formed XML.
std::string html_text(const HtmlPage& page);

}  // namespace cp_pool
