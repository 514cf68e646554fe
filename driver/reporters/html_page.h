// The page of the HTML report, a document of reporters/html_document.h. Tables that the terminal shows stand there as
// they are; pictures are in reporters/pictures/.
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
  std::string column;  // of the overview: "p2p thd"
  CaseOutcome outcome = CaseOutcome::not_run;
  std::string word;  // outcome_word
  Urgency urgency = Urgency::other;
  double ms = 0;
  std::string backend;
  std::string nearest;  // the check that came nearest to its bound: "0.43 dq rank 1"
  std::string note;     // one line: the reason
  std::vector<EarlierRun> earlier;
};

// The texts of a case that did not pass.
struct HtmlFailure {
  std::size_t index = 0;
  std::string word;  // outcome_word
  std::string head;  // "ID after 12 ms on pool cpu/2 #1"
  std::string text;  // checks, errors, stderr
  std::string rerun;
  std::optional<Diagnosis> diagnosis;  // for its pictures: its words are in the text
};

struct HtmlPool {
  PoolId id;
  std::string worker;    // name, and the versions that it tells
  std::string hosts;     // each once
  double ready_ms = -1;  // negative: it never was
  int cases = 0;
  std::string end;  // why it was given up
};

struct HtmlPage {
  std::string title;  // "te-flash (small) on cpu"
  std::string run;    // version, when, how long
  bool good = false;
  std::string ledger;
  std::string summary;  // text, as all to come
  std::string failed;   // the failures, a line each
  std::string perf;     // empty: no times were taken
  std::string timings;  // empty: no case ran
  std::vector<HtmlFailure> failures;
  std::vector<HtmlPool> pools;
  std::vector<HtmlCase> cases;  // in the order of the list
  FeaturesTable features;
  Timeline timeline;
};

// The document, which is well-formed XML, too.
std::string html_text(const HtmlPage& page);

}  // namespace cp_pool
