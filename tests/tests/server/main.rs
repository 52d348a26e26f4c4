//! End-to-end tests of the server and the command line, with real processes.

mod access;
mod alerts;
mod answers;
mod commands;
mod damage;
mod doctor;
mod documents;
mod elastic;
mod export;
mod goodput;
mod guard;
mod imports;
mod kills;
mod labels;
mod leftovers;
mod limits;
mod losses;
mod pace;
mod past_faults;
mod ranges;
mod recall;
mod stacks;
mod streams;
mod survival;
mod uploads;
mod utilization;
