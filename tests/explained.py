"""Whether a plot can be read by a stranger: its title, both axes, its caption."""

from glassformer.core.drawing import Drawing


def assert_explained(name: str, drawing: Drawing) -> None:
    """Every panel has a title and names for its axes, its own or the figure's; the caption is a sentence."""
    figure = drawing.figure
    panels = [axes for axes in figure.axes if axes.axison and axes.get_label() != "<colorbar>"]
    assert panels, name
    for axes in panels:
        titles = [axes.get_title(loc) for loc in ("left", "center", "right")]
        assert any(titles) or figure.get_suptitle(), f"{name}: no title"
        assert axes.get_xlabel() or figure.get_supxlabel(), f"{name}: nothing says what x is"
        assert axes.get_ylabel() or figure.get_supylabel(), f"{name}: nothing says what y is"
    caption = drawing.caption
    assert caption.endswith(".") and "\n" not in caption and caption[0].isupper(), f"{name}: {caption}"
    assert 40 < len(caption) < 700 and "nan" not in caption, f"{name}: {caption}"
