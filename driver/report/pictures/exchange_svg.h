// Draws the messages that ranks send each other at a time (Exchange, cases/comm_facts.h).
#pragma once

#include <string>

#include <pugixml.hpp>

#include "cases/comm_facts.h"

namespace cp_pool {

// Appends a figure: ranks in a circle, with an arrow for each message. If there are very many messages, it draws those
// of rank 0 only, and says so. `bytes` is the size of a message in words; all have the same size. `id` is as
// SvgFrame::id.
void append_exchange(pugi::xml_node parent, const Exchange& exchange, int ranks, const std::string& bytes,
                     const std::string& id);

}  // namespace cp_pool
