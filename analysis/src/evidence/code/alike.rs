//! The line in which ranks stand while all of them lose time alike.

use wire::event::SpanKind;
use wire::stacks::SpanLine;
use wire::views::Cause;

use super::Code;
use crate::finding::{Evidence, Finding, Statement};
use crate::stacks::{LossPlace, busiest};

/// Finds the line in the stacks of one rank, or else the line in which the job asks for its input.
pub(super) fn find(finding: &Finding, code: &Code<'_>) -> Option<Evidence> {
    let loss_place = match (finding.statement, finding.verdict.cause) {
        (Statement::AllAlike | Statement::Grows { .. }, Cause::Input) => LossPlace::Input,
        (Statement::AllAlike | Statement::Grows { .. }, Cause::Optimizer) => LossPlace::Optimizer,
        (Statement::AllAlike | Statement::Grows { .. }, Cause::Host) => LossPlace::Outside,
        _ => return None,
    };
    let pauses = code.pauses();
    let place = |rank: u32| Some((rank, busiest(code.profile(rank)?, loss_place, &pauses)?));
    let found = (0..code.stacks.len() as u32).find_map(place);
    let sampled = found.map(|(rank, place)| Evidence::InCode { place, rank, other_rank: None });
    sampled.or_else(|| if loss_place == LossPlace::Input { input_line(code) } else { None })
}

fn input_line(code: &Code<'_>) -> Option<Evidence> {
    let line = |(rank, lines): (usize, &Vec<SpanLine>)| {
        let line = lines.iter().find(|line| line.kind == SpanKind::Input)?;
        Some(Evidence::Called { frame: line.frame.clone(), rank: rank as u32 })
    };
    code.lines.iter().enumerate().find_map(line)
}
