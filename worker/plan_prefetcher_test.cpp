#include "worker/plan_prefetcher.h"

#include <atomic>
#include <future>
#include <semaphore>
#include <stdexcept>

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kLong{20};

PlanPrefetcher::Piece signal(std::counting_semaphore<>& done) {
  return [&done] { done.release(); };
}

TEST(PlanPrefetcher, DoesEveryPieceOnce) {
  std::counting_semaphore<> done{0};
  std::atomic<int> count = 0;
  {
    PlanPrefetcher prefetcher(3);
    prefetcher.prepare([&] {
      PlanPrefetcher::Pieces pieces;
      for (int i = 0; i < 10; ++i) {
        pieces.emplace_back([&] {
          ++count;
          done.release();
        });
      }
      return pieces;
    });
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(done.try_acquire_for(kLong));
  }
  EXPECT_EQ(count, 10);
}

TEST(PlanPrefetcher, GoesOnAfterPiecesAndRequestsThatFail) {
  std::counting_semaphore<> done{0};
  PlanPrefetcher prefetcher(1);
  prefetcher.prepare([&]() -> PlanPrefetcher::Pieces {
    done.release();
    throw std::runtime_error("no such case");
  });
  ASSERT_TRUE(done.try_acquire_for(kLong));
  prefetcher.prepare([&] { return PlanPrefetcher::Pieces{[] { throw 1; }, signal(done)}; });
  EXPECT_TRUE(done.try_acquire_for(kLong));
}

// A prefetcher whose only thread is kept busy while requests come.
class BusyPreparer : public testing::Test {
 protected:
  void keep_busy(std::vector<PlanPrefetcher::Piece> then = {}) {
    prefetcher_->prepare([this, then = std::move(then)] {
      PlanPrefetcher::Pieces pieces{[this, let_go = let_go_] {
        begun_.release();
        let_go->acquire();
      }};
      pieces.insert(pieces.end(), then.begin(), then.end());
      return pieces;
    });
    ASSERT_TRUE(begun_.try_acquire_for(kLong));
  }
  void TearDown() override { let_go_->release(); }

  std::counting_semaphore<> begun_{0};
  // Shared with the piece, which may outlive the test.
  std::shared_ptr<std::counting_semaphore<>> let_go_ = std::make_shared<std::counting_semaphore<>>(0);
  std::unique_ptr<PlanPrefetcher> prefetcher_ = std::make_unique<PlanPrefetcher>(1, milliseconds(1));
};

TEST_F(BusyPreparer, DropsWhatIsLeftOfAnEarlierRequest) {
  std::atomic<bool> stale = false;
  keep_busy({[&] { stale = true; }});
  std::counting_semaphore<> done{0};
  prefetcher_->prepare([&] { return PlanPrefetcher::Pieces{signal(done)}; });
  let_go_->release();
  ASSERT_TRUE(done.try_acquire_for(kLong));
  EXPECT_FALSE(stale);
}

TEST(PlanPrefetcher, DropsWhatAnEarlierRequestListsTooLate) {
  std::counting_semaphore<> begun{0};
  std::counting_semaphore<> let_go{0};
  std::counting_semaphore<> done{0};
  std::atomic<bool> stale = false;
  PlanPrefetcher prefetcher(1);
  prefetcher.prepare([&] {
    begun.release();
    let_go.acquire();
    return PlanPrefetcher::Pieces{[&] { stale = true; }};
  });
  ASSERT_TRUE(begun.try_acquire_for(kLong));
  prefetcher.prepare([&] { return PlanPrefetcher::Pieces{signal(done)}; });
  let_go.release();
  ASSERT_TRUE(done.try_acquire_for(kLong));
  EXPECT_FALSE(stale);
}

TEST_F(BusyPreparer, SettlesWhenThePieceAtWorkIsDone) {
  std::atomic<bool> dropped = true;
  keep_busy({[&] { dropped = false; }});
  EXPECT_FALSE(prefetcher_->settle(milliseconds(1)));
  let_go_->release();
  EXPECT_TRUE(prefetcher_->settle(kLong));
  EXPECT_TRUE(dropped);
}

TEST_F(BusyPreparer, DoesNotWaitForAPieceWithoutEnd) {
  keep_busy();
  auto gone = std::async(std::launch::async, [this] { prefetcher_.reset(); });
  EXPECT_EQ(gone.wait_for(kLong), std::future_status::ready);
}

TEST(PreparerWithoutThreads, DoesNothing) {
  bool listed = false;
  {
    PlanPrefetcher prefetcher(0);
    prefetcher.prepare([&] {
      listed = true;
      return PlanPrefetcher::Pieces{};
    });
    EXPECT_TRUE(prefetcher.settle(kLong));
  }
  EXPECT_FALSE(listed);
}

}  // namespace
}  // namespace cp_pool
