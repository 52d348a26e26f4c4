//! The in-process recorder of Paceline.
