"""Timers and the simulator; expected times are worked by hand."""

from bench.nack_simulator import GeneratedLoad, NackEvents, TimerResult, events_of, generate_events, simulate


def runs(events: NackEvents, bits: int, base_delay_ms: int | None = None) -> dict[str, TimerResult]:
    return {result.timer: result for result in simulate(events, bits, base_delay_ms)}


def test_old_timer_is_late_by_up_to_a_third_of_the_delay() -> None:
    # armed at 0, fires at 300, 600, 900 (first nack due), 1200, 1500; the second is due at 901
    result = runs(events_of([(0, 1, 1, 900), (1, 1, 2, 900)]), 0)["interval"]
    assert (result.redeliveries, result.doubled, result.late.max_ms, result.late.mean_ms) == (2, 0, 299, 149.5)
    assert result.early.max_ms == 0
    assert result.firings == 5
    assert result.visited == 2 + 2 + 2 + 1


def test_old_timer_forgets_the_earlier_nack_of_an_entry() -> None:
    # the entry waits for 20 s, so the first nack is 10 s late; buckets redeliver it twice, in time
    result = runs(events_of([(0, 1, 7, 10_000), (0, 1, 7, 20_000)]), 0)
    assert (result["interval"].redeliveries, result["interval"].late.max_ms) == (1, 10_000)
    assert (result["deadline"].redeliveries, result["deadline"].doubled, result["deadline"].late.max_ms) == (2, 1, 0)


def test_merged_timer_makes_a_shorter_nack_wait() -> None:
    # armed at 0 for 10,000; the nack of 1 s asked at 100 is due at 1100 and goes out at 10,000
    events = events_of([(0, 1, 1, 10_000), (100, 1, 2, 1000)])
    result = runs(events, 0)
    assert result["merged"].late.max_ms == 8900
    assert result["deadline"].late.max_ms == 0


def test_buckets_are_early_by_less_than_their_width() -> None:
    result = runs(events_of([(0, 1, 1, 1024 + 255), (0, 1, 2, 1024)]), 8)["deadline"]
    assert (result.early.max_ms, result.early.mean_ms, result.firings) == (255, 127.5, 1)


def test_the_cpp_clients_timer_starts_anew_with_every_nack() -> None:
    """Nacked at 0, 250 and 500 for 900: the timer of 300 ms never fires before 800 (nothing due), then 1100 and 1400."""
    result = runs(events_of([(0, 1, 1, 900), (250, 1, 2, 900), (500, 1, 3, 900)]), 8)["cpp"]
    assert (result.redeliveries, result.firings, result.early.max_ms) == (3, 4, 0)  # 800, 1100, 1400, and 1700: nothing
    assert (result.late.max_ms, result.late.mean_ms) == (250, (200 + 250 + 0) / 3)
    assert result.peak_bytes is None


def test_the_cpp_client_is_as_late_as_nacks_keep_coming() -> None:
    """A nack a second for 20 s, delay 6 s: the last at 20,000 arms 22,000, which is 16 s behind the first one's time."""
    result = runs(events_of([(1000 * second, 1, second, 6000) for second in range(21)]), 8)["cpp"]
    assert result.late.max_ms == 16_000


def test_the_cpp_client_names_an_entry_once_in_a_request() -> None:
    assert runs(events_of([(0, 1, 7, 300), (10, 1, 7, 300)]), 0)["cpp"].doubled == 0


def test_the_go_clients_ticker() -> None:
    """Ticks at 300, 600, 900 …: due at 900 with the first, at 901 with the next; trimmed by 8 bits 1023 is due from 768 on."""
    result = runs(events_of([(0, 1, 1, 900), (1, 1, 2, 900)]), 0)["go"]
    assert (result.late.max_ms, result.firings) == (299, 4)
    assert runs(events_of([(0, 1, 1, 1023)]), 8, 900)["go"].early.max_ms == 123
    assert runs(events_of([(0, 1, 7, 300), (10, 1, 7, 300)]), 0)["go"].doubled == 1


def test_upstreams_floor_of_the_check_interval() -> None:
    # a delay of 30 ms is checked every 100/3 ms, not every 10
    assert runs(events_of([(0, 1, 1, 30)]), 0, 30)["interval"].late.max_ms == 4


def test_nothing_is_lost_and_bounds_hold_on_a_random_load() -> None:
    load = GeneratedLoad(500, 10_000, 0, 5000, batch_size=5, nacked=0.4, processing_ms=300, seed=3)
    events = generate_events(load)
    for bits in (0, 6, 10):
        result = runs(events, bits, 1000)["deadline"]
        due = events.times_ms + events.delays_ms
        asked = set(zip((due >> bits).tolist(), events.ledger_ids.tolist(), events.entry_ids.tolist(), strict=True))
        assert result.early.count == result.late.count == len(events)
        assert result.early.max_ms < 2**bits
        assert result.late.max_ms == 0
        assert result.redeliveries >= len(asked)
        assert 0 < len(result.memory) <= 101
        assert result.peak_bytes == max(sample.size_bytes for sample in result.memory)
