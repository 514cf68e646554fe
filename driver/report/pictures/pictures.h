// The pictures and tables of figures on the pages. Each function appends a figure to the page; `id` is as SvgFrame::id.
#pragma once

#include <string>
#include <vector>

#include <pugixml.hpp>

#include "cases/comm_facts.h"
#include "cases/diagnosis.h"
#include "driver/core/case_shape.h"
#include "driver/log/run_report.h"

namespace cp_pool {

// The mask of a failing case as the diagnosis saw it: cells that are correct, cells where keys are missing and cells
// with too many keys, with borders of sequences, owners along both axes, and a legend. The picture must be well formed
// (worker/protocol/diagnosis_intake.h).
void append_mask(pugi::xml_node parent, const MaskPicture& picture, const std::string& id);

// Where tensors of a failing case were wrong. A row for each tensor and rank: error / bound over its rows, with the
// borders of chunks and sequences, and over its heads. All share one logarithmic scale, with a line at the bound. A
// table below has the worst cell of each. The strips must be well formed (worker/protocol/diagnosis_intake.h).
void append_strips(pugi::xml_node parent, const std::vector<ErrorStrip>& strips, const std::string& id);

// The run as lanes of pools with the cases that they ran, in a box that scrolls on a narrow page. Cases and pools that
// are too short to be seen are drawn together with their neighbours, so the size of the picture is bounded. Appends
// nothing for a run without pools or whose events have no times.
void append_timeline(pugi::xml_node parent, const RunReport& run);

// A heading and a table of the outcomes of the cases that have a feature: a mask, a softmax, padding and so on. A case
// counts for each of its features. Features are down, outcomes to the right, and a bar shows their shares. It has only
// features and outcomes that occur, and nothing is appended without cases. Each count links to the first such case in
// the page's table of cases.
void append_features(pugi::xml_node parent, const RunReport& run);

// The mask of a sequence as `cp-pool explain` draws it (driver/core/case_shape.h), in the colours of the ranks that
// own the queries, with rank numbers along both axes, and lines where tiles meet. `tiles` is the number of tiles along
// a side, all of equal length. Appends nothing for a sequence without blocks.
void append_case_mask(pugi::xml_node parent, const CaseDrawing& drawing, int tiles, const std::string& caption,
                      const std::string& id);

// The messages that ranks send each other at a time: ranks in a circle, with an arrow for each message. If there are
// very many messages, it draws those of rank 0 only, and says so. `bytes` is the size of a message in words; all have
// the same size.
void append_exchange(pugi::xml_node parent, const Exchange& exchange, int ranks, const std::string& bytes,
                     const std::string& id);

}  // namespace cp_pool
