"""Codes of structures, quantities and units in DICOM results: SNOMED CT, LOINC and UCUM, else our own."""

from typing import Any

OWN = "99FCLSEG"
PER_SURFACE = " per body surface"

STRUCTURES = {
    "LV": ("87878005", "SCT", "Left ventricle"),
    "RV": ("53085002", "SCT", "Right ventricle"),
    "MYO": ("49848007", "SCT", "Left Ventricle Myocardium"),
}
HEART = ("80891009", "SCT", "Heart")
"""For structures that are not listed, such as the blood pool of the whole heart."""

QUANTITIES = {
    "LV end-diastolic volume": ("8821-1", "LN", "Left Ventricular ED Volume"),
    "LV end-systolic volume": ("8823-7", "LN", "Left Ventricular ES Volume"),
    "LV ejection fraction": ("8811-2", "LN", "Left ventricular ejection fraction by MR"),
    "LV stroke volume": ("90096001", "SCT", "Stroke Volume"),
    "LV stroke volume per body surface": ("277381004", "SCT", "Stroke Index"),
    "LV cardiac output": ("82799009", "SCT", "Cardiac Output"),
    "LV cardiac output per body surface": ("54993008", "SCT", "Cardiac Index"),
    "RV end-diastolic volume": ("8822-9", "LN", "Right Ventricular ED Volume"),
    "RV end-systolic volume": ("8824-5", "LN", "Right Ventricular ES Volume"),
    "RV ejection fraction": ("8818-7", "LN", "Right ventricular ejection fraction by MR"),
    "RV stroke volume": ("429483009", "SCT", "Right ventricular stroke volume"),
    "RV stroke volume per body surface": ("429619008", "SCT", "Right ventricular stroke index"),
    "RV cardiac output": ("428628004", "SCT", "Right ventricular cardiac output"),
    "RV cardiac output per body surface": ("427990004", "SCT", "Right ventricular cardiac index"),
    "MYO mass": ("18087-7", "LN", "Left Ventricle Mass"),
}
UNITS = {"ml": "ml", "%": "%", "g": "g", "l/min": "l/min", "ml/m²": "ml/m2", "g/m²": "g/m2", "l/min/m²": "l/min/m2"}
"""Our units and how UCUM writes them."""


def coded(triple: tuple[str, str, str]) -> Any:
    from pydicom.sr.coding import Code

    return Code(*triple)


def structure_code(name: str) -> tuple[str, str, str]:
    return STRUCTURES.get(name, HEART)


def quantity_code(name: str) -> tuple[str, str, str]:
    """The code of a measurement, for example "LV ejection fraction"; our own if there is no standard one."""
    own = "".join(word[0] if word.islower() else word for word in name.replace("-", " ").split())[:16]
    return QUANTITIES.get(name, (own, OWN, name[:64]))


def unit_code(unit: str) -> tuple[str, str, str]:
    ucum = UNITS.get(unit, unit)
    return ucum, "UCUM", unit
