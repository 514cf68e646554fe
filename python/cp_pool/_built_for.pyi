# The module is made by the build (cmake/CpPoolWheel.cmake).
TORCH: str
PYTHON: str
COMM_TYPES: tuple[str, ...]
