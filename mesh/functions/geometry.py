"""``geo:`` functions: relations of places and areas in GeoJSON, by shapely.

Coordinates are degrees, longitude first, and are treated as a plane, as in the original; a distance
in metres becomes degrees of 110,574.61 m.  Beside GeoJSON there is ``{'type':'Circle',
'coordinates':[1.5, 1.5], 'radius':110575}``; keys and texts may have single quotes.

Source: documentation of the geo extension of Siddhi.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from mesh.connect.contract import library
from mesh.functions.exact_json import read_exact
from mesh.functions.vectors import Function, each_row

if TYPE_CHECKING:
    from collections.abc import Callable

_METRES_PER_DEGREE: Final = 110574.61087757687
#: Mean radius of the earth.
_RADIUS_M: Final = 6_371_008.8


@lru_cache(maxsize=1024)
def _area(text: str) -> Any:
    """The geometry of a text.

    Raises:
        ValueError: it is none.
    """
    shapely: Any = library("shapely", "geo")
    geometry: Any = library("shapely.geometry", "geo")
    try:
        geojson = read_exact(text if '"' in text else text.replace("'", '"'))
        if geojson["type"] == "Circle":
            radius = float(geojson["radius"]) / _METRES_PER_DEGREE
            area = geometry.Point(geojson["coordinates"]).buffer(radius, quad_segs=8)
        else:
            area = geometry.shape(geojson)
    # Texts of strangers may fail in any way.
    except Exception as error:
        shown = text if len(text) <= 200 else f"{text[:200]}.."
        raise ValueError(f"'{shown}' is no GeoJSON geometry: {error}") from error
    shapely.prepare(area)
    return area


def _pair(arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """The place or area, and the fence."""
    *first, fence = arguments
    if len(first) == 1:
        return _area(first[0]), _area(fence)
    return library("shapely.geometry", "geo").Point(*map(float, first)), _area(fence)


def _relation(name: str) -> Callable[..., bool]:
    def holds(*arguments: Any) -> bool:
        first, fence = _pair(arguments)
        # A fence that is prepared answers faster, and is mostly the same one.
        return bool(fence.contains(first) if name == "within" else getattr(first, name)(fence))

    return holds


def _within_distance(*arguments: Any) -> bool:
    first, fence = _pair(arguments[:-1])
    return bool(first.distance(fence) <= float(arguments[-1]) / _METRES_PER_DEGREE)


def _distance(latitude: Any, longitude: Any, other_latitude: Any, other_longitude: Any) -> float:
    """Metres on a sphere, by the haversine formula."""
    a, b = math.radians(latitude), math.radians(other_latitude)
    half = math.sin((b - a) / 2) ** 2
    turned = math.sin(math.radians(other_longitude - longitude) / 2) ** 2
    return 2 * _RADIUS_M * math.asin(math.sqrt(min(1.0, half + math.cos(a) * math.cos(b) * turned)))


FUNCTIONS: dict[str, Function] = {
    "geo:distance": each_row(_distance),
    "geo:withindistance": each_row(_within_distance),
    **{
        f"geo:{name}": each_row(_relation(name))
        for name in ("disjoint", "equals", "intersects", "overlaps", "touches", "within")
    },
}
#: Those that need shapely.
OF_AREAS: Final = frozenset(FUNCTIONS) - {"geo:distance"}
