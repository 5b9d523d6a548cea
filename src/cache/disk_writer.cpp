#include "cache/disk_writer.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <optional>

#include "base/check.h"

namespace espalier::cache {

void carry_out(const std::string& directory, const DirectoryLock& lock, const DiskRemoval& removal) {
    for (const std::string& file : removal.files) ::unlink((directory + "/" + file).c_str());
    if (removal.holes.empty()) return;
    // After a power cut no entry may come back whose pages are gone.
    if (!lock.sync()) return;
    auto file = DiskFile::open(directory + "/" + pages_file_name(removal.conversation), DiskFile::Mode::read_write);
    if (!file) return;
    for (const auto& [offset, bytes] : removal.holes) file->punch(offset, bytes);
}

DiskWriter::DiskWriter(std::string directory, const DirectoryLock& lock, const DirectoryScan& scan)
    : directory_(std::move(directory)), lock_(lock) {
    for (const ScannedState& state : scan.states) {
        for (const PageRef& page : state.front.pages) {
            if (page.record == kInlineRecord) continue;
            std::vector<uint64_t>& checksums = checksums_[state.front.conversation];
            if (page.record >= checksums.size()) checksums.resize(page.record + size_t{1});
            checksums[page.record] = page.checksum;
        }
    }
    thread_ = std::thread([this] { run(); });
}

DiskWriter::~DiskWriter() {
    drop_waiting();
    {
        std::lock_guard lock(mutex_);
        is_stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void DiskWriter::write(DiskWrite write) {
    {
        std::lock_guard lock(mutex_);
        tasks_.emplace_back(std::move(write));
    }
    changed_.notify_all();
}

void DiskWriter::remove(DiskRemoval removal) {
    {
        std::lock_guard lock(mutex_);
        tasks_.emplace_back(std::move(removal));
    }
    changed_.notify_all();
}

std::vector<uint64_t> DiskWriter::drop_waiting() {
    std::vector<uint64_t> entries;
    std::lock_guard lock(mutex_);
    std::erase_if(tasks_, [&](const Task& task) {
        const auto* write = std::get_if<DiskWrite>(&task);
        if (write != nullptr) entries.push_back(write->entry);
        return write != nullptr;
    });
    return entries;
}

std::vector<DiskWriteEnd> DiskWriter::take_ended() {
    std::lock_guard lock(mutex_);
    return std::exchange(ended_, {});
}

void DiskWriter::wait_until_idle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return tasks_.empty() && !is_busy_; });
}

void DiskWriter::set_on_ended(std::function<void()> on_ended) {
    std::lock_guard lock(mutex_);
    on_ended_ = std::move(on_ended);
}

void DiskWriter::run() {
    const FileSizeSignalBlock no_signal;
    while (true) {
        std::optional<Task> task;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
            if (tasks_.empty()) return;
            task = std::move(tasks_.front());
            tasks_.pop_front();
            is_busy_ = true;
        }
        if (auto* write = std::get_if<DiskWrite>(&*task)) {
            do_write(*write);
        } else {
            const auto& removal = std::get<DiskRemoval>(*task);
            carry_out(directory_, lock_, removal);
            if (removal.is_whole_conversation) checksums_.erase(removal.conversation);
        }
        {
            std::lock_guard lock(mutex_);
            is_busy_ = false;
        }
        changed_.notify_all();
    }
}

void DiskWriter::do_write(DiskWrite& write) {
    DiskWriteEnd end;
    end.entry = write.entry;
    if (failure_) {
        try {
            failure_ = write_entry(write, end);
        } catch (const std::exception& e) {
            failure_ = exhausted(e.what());
        }
    }
    end.status = failure_;
    std::function<void()> on_ended;
    {
        std::lock_guard lock(mutex_);
        ended_.push_back(std::move(end));
        on_ended = on_ended_;
    }
    if (on_ended) on_ended();
}

Status DiskWriter::write_entry(DiskWrite& write, DiskWriteEnd& end) {
    const std::string path = directory_ + "/" + state_file_name(write.front.conversation, write.entry);
    const std::string part = path + ".part";
    PagesFile pages;
    Status status = write_pages(write, pages, end);
    if (status) status = write_state(write, part, end);
    if (status && ::rename(part.c_str(), path.c_str()) != 0) status = exhausted(path + ": cannot rename the finished file");
    if (!status) {
        // A full disk gets its space back.
        ::unlink(part.c_str());
        if (pages.file) (void)pages.file->truncate(pages.bytes_before);
        return status;
    }
    return lock_.sync();
}

// New records to their places, and every page's checksum.
Status DiskWriter::write_pages(DiskWrite& write, PagesFile& pages, DiskWriteEnd& end) {
    StateFront& front = write.front;
    std::vector<uint64_t>& checksums = checksums_[front.conversation];
    const PagesHeader header{front.conversation, front.page_bytes};
    for (size_t index = 0; index < front.pages.size(); ++index) {
        PageRef& page = front.pages[index];
        if (write.pages[index] == nullptr) {
            CHECK(page.record < checksums.size(), "a shared record has been written");
            page.checksum = checksums[page.record];
            continue;
        }
        const std::span<const std::byte> bytes(write.pages[index], front.page_bytes);
        page.checksum = disk_checksum(bytes);
        if (page.record == kInlineRecord) continue;
        if (!pages.file) {
            TRY_ASSIGN(pages.file,
                       DiskFile::open(directory_ + "/" + pages_file_name(front.conversation), DiskFile::Mode::create));
            TRY_ASSIGN(pages.bytes_before, pages.file->size());
            if (pages.bytes_before < kPagesHeaderBytes) TRY(pages.file->write_at(encode_pages_header(header), 0));
        }
        TRY(pages.file->write_at(bytes, header.record_offset(page.record)));
        if (page.record >= checksums.size()) checksums.resize(page.record + size_t{1});
        checksums[page.record] = page.checksum;
        end.page_bytes += static_cast<int64_t>(bytes.size());
    }
    return pages.file ? lock_.sync(*pages.file) : Status();
}

Status DiskWriter::write_state(const DiskWrite& write, const std::string& part, DiskWriteEnd& end) {
    StateFront front = write.front;
    const std::span<const std::byte> state(write.state, front.state_bytes);
    front.state_checksum = disk_checksum(state);
    TRY_ASSIGN(DiskFile file, DiskFile::open(part, DiskFile::Mode::create));
    TRY(file.write_at(encode_state_front(front), 0));
    TRY(file.write_at(state, front.state_offset()));
    uint64_t n_inline = 0;
    for (size_t index = 0; index < front.pages.size(); ++index) {
        if (front.pages[index].record != kInlineRecord) continue;
        TRY(file.write_at(std::span(write.pages[index], front.page_bytes), front.inline_offset(n_inline++)));
    }
    TRY(file.truncate(front.file_bytes()));
    TRY(lock_.sync(file));
    set_modified(part, write.modified_ns);
    end.state_bytes += static_cast<int64_t>(front.file_bytes());
    return {};
}

}  // namespace espalier::cache
