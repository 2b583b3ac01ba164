"""The ways in which people use a page: a mouse, a keyboard alone, and a finger on a phone of 390 pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from playwright.sync_api import expect

from tests.browser.conftest import DESKTOP, PHONE

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

MOST_TABS: Final = 120  # to reach a control: a page has more links
IS_FOCUSED: Final = "each => each === document.activeElement"


class Mouse:
    """Clicks, and types into what was clicked."""

    size = DESKTOP
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, page: Page) -> None:
        self.page = page

    def activate(self, control: Locator) -> None:
        control.click()

    def write(self, field: Locator, text: str) -> None:
        self.activate(field)
        self.page.keyboard.insert_text(text)

    def choose(self, field: Locator, value: str) -> None:
        field.select_option(value)

    def pick(self, name: str, *values: str) -> None:
        """Choose values of a filter of the matrix, and fold its list again."""
        summary, boxes = self.page.locator(f'.pick[data-name="{name}"] > summary'), self.boxes(name, values)
        self.activate(summary)
        for box in boxes:
            self.check(box)
        self.fold(summary)
        expect(boxes[0]).to_be_hidden()

    def boxes(self, name: str, values: tuple[str, ...]) -> list[Locator]:
        return [self.page.locator(f'.pick[data-name="{name}"] input[value="{value}"]') for value in values]

    def fold(self, summary: Locator) -> None:
        self.activate(summary)

    def check(self, box: Locator) -> None:
        self.activate(box)
        expect(box).to_be_checked()

    def open_square(self, square: Locator) -> None:
        self.activate(square)


class Finger(Mouse):
    """Taps on a small screen, and never needs to scroll sideways except in the matrix."""

    size = PHONE
    settings: ClassVar[dict[str, Any]] = {"has_touch": True, "is_mobile": True}

    def activate(self, control: Locator) -> None:
        control.wait_for()
        self.page.wait_for_load_state()  # without its style sheet a page is wider
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE[0], f"{self.page.url} is {wide} pixels wide"
        control.tap()


class Keyboard(Mouse):
    """Reaches everything with Tab and arrow keys, and sees where the focus is."""

    def focus(self, control: Locator) -> None:
        expect(control).to_be_attached()
        for _ in range(MOST_TABS):
            if control.evaluate(IS_FOCUSED):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{MOST_TABS} tabs do not reach {control}")

    def activate(self, control: Locator) -> None:
        self.focus(control)
        outline = control.evaluate("each => getComputedStyle(each).outlineStyle")
        assert outline != "none", f"the focus on {control} is invisible"
        self.page.keyboard.press("Enter")

    def write(self, field: Locator, text: str) -> None:
        self.focus(field)
        self.page.keyboard.insert_text(text)

    def choose(self, field: Locator, value: str) -> None:
        self.focus(field)
        self.page.keyboard.type(field.locator(f'option[value="{value}"]').inner_text())
        expect(field).to_have_value(value)

    def check(self, box: Locator) -> None:
        """Walk down the list with arrow keys."""
        expect(box).to_be_visible()
        for _ in range(MOST_TABS):
            if box.evaluate(IS_FOCUSED):
                break
            self.page.keyboard.press("ArrowDown")
        self.page.keyboard.press("Space")
        expect(box).to_be_checked()

    def fold(self, summary: Locator) -> None:
        """Leave a list with Escape, which gives the focus back to its button."""
        self.page.keyboard.press("Escape")
        assert summary.evaluate(IS_FOCUSED)

    def open_square(self, square: Locator) -> None:
        """Walk through the grid: down to the row of a square, and right to its column."""
        self.focus(self.page.locator('#grid [tabindex="0"]'))
        row, column = square.evaluate(
            "each => [each.closest('[data-row]').dataset.row, each.closest('[data-column]').dataset.column].map(Number)"
        )
        for _ in range(row):
            self.page.keyboard.press("ArrowDown")
        for _ in range(column):
            self.page.keyboard.press("ArrowRight")
        assert square.evaluate(IS_FOCUSED)
        self.page.keyboard.press("Enter")


HANDS: Final = (Mouse, Keyboard, Finger)


def clipboard(page: Page) -> str:
    """Return what a copy button left in the clipboard."""
    page.evaluate("document.body.append(Object.assign(document.createElement('textarea'), { id: 'pasted' }))")
    page.locator("#pasted").focus()
    page.keyboard.press("Control+V")
    text = page.locator("#pasted").input_value()
    page.evaluate("document.getElementById('pasted').remove()")
    return text
