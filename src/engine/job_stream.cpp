#include <chrono>

#include "engine/engine.h"

namespace espalier::engine {

const char* to_string(CacheSource source) {
    switch (source) {
        case CacheSource::ram: return "ram";
        case CacheSource::disk: return "disk";
        case CacheSource::none: break;
    }
    return "none";
}

std::optional<JobEvent> JobStream::try_next() {
    std::lock_guard lock(mutex_);
    if (events_.empty()) return std::nullopt;
    JobEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
}

std::optional<JobEvent> JobStream::wait_next(int timeout_ms) {
    std::unique_lock lock(mutex_);
    ready_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return !events_.empty() || done_; });
    if (events_.empty()) return std::nullopt;
    JobEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
}

void JobStream::set_notify(std::function<void()> notify) {
    std::lock_guard lock(mutex_);
    notify_ = std::move(notify);
    // Called under the lock: the contract forbids calling back, and it makes replacing the callback race-free.
    if (!events_.empty() && notify_) notify_();
}

void JobStream::cancel() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
}

bool JobStream::is_cancelled() const {
    std::lock_guard lock(mutex_);
    return cancelled_;
}

bool JobStream::is_done() const {
    std::lock_guard lock(mutex_);
    return done_ && events_.empty();
}

void JobStream::push(JobEvent event) {
    std::lock_guard lock(mutex_);
    if (done_) return;
    done_ = event.kind == JobEvent::Kind::finished || event.kind == JobEvent::Kind::failed;
    events_.push_back(std::move(event));
    ready_.notify_all();
    if (notify_) notify_();
}

}  // namespace espalier::engine
