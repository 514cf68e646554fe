# Made by the build (cmake/CpPoolWheel.cmake).
TORCH: str
PYTHON: str
