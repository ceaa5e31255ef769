"""What the page and the site have in common: tests of the page, run on the site.

Others use what the site lacks: other tabs, the tour, and weights of earlier training steps.
"""

import pytest

from tests.browser.test_bench import (
    test_any_block_layer_and_input_can_be_watched_and_a_head_opens,
    test_attention_has_the_colors_of_the_theme,
    test_the_slider_moves_answers_heads_and_figures_together,
)
from tests.browser.test_inside import (
    test_a_cell_opens_by_pointer_key_and_link,
    test_on_a_phone_a_pressed_cell_brings_its_story_into_view,
    test_the_numbers_multiply_out,
    test_without_the_head_the_answer_changes_as_ablation_says,
    viewer,
)
from tests.browser.test_learn import (
    learn,
    test_a_head_is_taken_out_and_the_training_is_replayed,
    test_a_link_of_a_lesson_opens_the_head_on_its_tab,
    test_a_sentence_is_read_along_with_its_translation,
    test_an_input_that_cannot_be_read_is_refused_beside_it,
    test_answers_and_progress_survive_a_reload,
    test_masks_are_removed,
    test_the_lesson_that_was_open_last_opens_again_and_the_address_names_it,
    test_the_map_is_that_of_a_decode_and_follows_input_and_head,
    test_the_scores_of_a_row_are_divided_or_not,
)
from tests.browser.test_playback import (
    test_a_paused_playback_survives_everything_pressed_meanwhile,
    test_a_playback_reveals_the_rows_and_ends_by_itself,
    test_a_row_stop_another_mode_and_a_new_decode_end_a_playback,
    test_a_running_playback_waits_while_another_tab_is_open,
)
from tests.browser.test_training_replay import (
    test_decode_ends_a_replay_and_shows_the_new_answer,
    test_maps_can_be_previewed_and_downloaded,
)

pytestmark = pytest.mark.slow
