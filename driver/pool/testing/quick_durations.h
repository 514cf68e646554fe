// Durations of the cases of a real run in milliseconds, by number of ranks: duration_ms of every case_finished with 1,
// 2, 4 or 8 ranks of `cp-pool run --matrix quick --events FILE`, on two cores of a server CPU, 2026-11-24.
#pragma once

#include <map>
#include <vector>

namespace cp_pool::fleet_test {

inline const std::map<int, std::vector<int>> kQuickDurations{
    {1, {23, 7, 7}},
    {2, {26, 32, 57, 36, 35, 34, 22, 21, 36, 34, 40, 18, 17, 20,  20, 33, 37, 25, 34, 38, 36, 22,
         25, 39, 19, 35, 19, 26, 31, 34, 63, 49, 77, 31, 88, 116, 30, 46, 32, 23, 43, 60, 31, 22,
         16, 19, 18, 19, 17, 8,  10, 29, 41, 33, 26, 34, 41, 46,  35, 27, 26, 54, 29, 24, 19, 24}},
    {4, {112, 87, 86, 50, 114, 122, 124, 131, 131, 104, 135, 77, 97, 99,  100, 169, 215, 76,
         85,  83, 63, 95, 70,  107, 83,  73,  81,  66,  58,  52, 46, 123, 145, 132, 112, 63}},
    {8, {325, 153, 145, 144, 162}},
};

}  // namespace cp_pool::fleet_test
