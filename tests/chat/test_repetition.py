from chat.repetition import circle_start, whole_sentences

SENTENCE = list(range(100, 120))


def test_a_sentence_written_twice_over_is_kept_once() -> None:
    tokens = [1, 2, 3, *SENTENCE, *SENTENCE]
    assert circle_start(tokens) == 3 + len(SENTENCE)
    assert circle_start(tokens[:-1]) is None


def test_a_short_stretch_is_let_go_round_a_few_times() -> None:
    table = [7, 8, 9] * 5
    assert circle_start([1, 2, *table]) is None
    assert circle_start([1, 2, *[7, 8, 9] * 16]) == 2 + 3


def test_text_that_comes_back_after_something_else_is_no_circle() -> None:
    assert circle_start([*SENTENCE, 1, 2, 3, *SENTENCE]) is None
    assert circle_start([]) is None
    assert circle_start([5]) is None


def test_what_a_cut_broke_off_is_left_out() -> None:
    assert whole_sentences("It is 16. It is full.\n\nThe") == "It is 16. It is full."
    assert whole_sentences("缓存很大。它会") == "缓存很大。"
    assert whole_sentences("It is 16. It is full.") == "It is 16. It is full."
    assert whole_sentences("It never ends and") == "It never ends and"
