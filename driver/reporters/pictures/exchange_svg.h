// What ranks send each other at a time (Exchange, cases/comm_facts.h), as a picture.
#pragma once

#include <string>

#include <pugixml.hpp>

#include "cases/comm_facts.h"

namespace cp_pool {

// A figure: ranks in a circle, with an arrow for each message. Of an exchange with very many messages it has those of
// rank 0 alone, and says so. bytes: how large a message is, in words; all are of one size. id: as SvgFrame::id.
void append_exchange(pugi::xml_node parent, const Exchange& exchange, int ranks, const std::string& bytes,
                     const std::string& id);

}  // namespace cp_pool
